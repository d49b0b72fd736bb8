"""`tests.sampling`."""

from __future__ import annotations

import itertools

import pytest

from tests.sampling import in_sample, pairwise


def test_in_sample__each_day_of_four__every_test_has_one_turn_and_days_are_alike() -> None:
    names = [f"tests/test_{file}.py::test[{case}]" for file, case in itertools.product(range(20), range(50))]
    days = [[name for name in names if in_sample(name, f"{day}/4")] for day in range(4)]
    assert sorted(itertools.chain(*days)) == sorted(names)
    assert [len(day) for day in days] == pytest.approx([250] * 4, rel=0.2)


def test_pairwise__three_dimensions__every_two_values_meet() -> None:
    every = list(itertools.product(range(3), range(4), range(2)))
    chosen = pairwise(every)
    assert len(chosen) < len(every) // 1.5
    for a, b in itertools.combinations(range(3), 2):
        assert {(at[a], at[b]) for at in chosen} == {(at[a], at[b]) for at in every}

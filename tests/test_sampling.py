"""Samples of matrices have every kind of case."""

from __future__ import annotations

from itertools import combinations, product

from tests.sampling import pairwise


def test_pairwise__of_several_dimensions__lets_every_two_values_meet_in_few_cases() -> None:
    for sizes, most in (((8, 3, 2, 2), 26), ((7, 3, 3), 23), ((15, 2, 2), 30), ((3, 3, 2, 2), 10)):
        every = list(product(*map(range, sizes)))
        chosen = pairwise(every)
        for first, second in combinations(range(len(sizes)), 2):
            wanted = set(product(range(sizes[first]), range(sizes[second])))
            assert {(at[first], at[second]) for at in chosen} == wanted
        assert len(chosen) <= most < len(every)


def test_pairwise__of_two_dimensions__is_everything() -> None:
    every = list(product(range(4), range(3)))
    assert pairwise(every) == every

"""Which kernels of reductions, softmax and norms run for what models ask for, beside what was chosen by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pyruntime.ir import DType
from tests.kernels.folding_cases import TARGETS, WAYS, listed, told


@pytest.mark.parametrize("family", WAYS)
def test_chosen__what_models_ask_for__what_was_chosen_by_hand(family: str) -> None:
    by_hand = dict(listed(family))
    assert len(by_hand) > 150
    assert {problem: tuple(told(family, problem, t) for t in TARGETS) for problem in by_hand} == by_hand


@pytest.mark.parametrize("family", WAYS)
def test_chosen__half_precision_or_subgroups__the_same(family: str) -> None:
    shuffling = [replace(t, features=frozenset({"subgroups", "subgroup_size_32"})) for t in TARGETS]
    for problem, _ in list(listed(family))[::7]:
        for target, other in zip(TARGETS, shuffling, strict=True):
            kept = told(family, problem, target)
            assert told(family, problem, target, DType.FLOAT16) == kept
            assert told(family, problem, other) == kept

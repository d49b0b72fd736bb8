"""Which kernels of reductions, softmax and norms run for what models need: what costs choose, written down."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pyruntime.ir import DType
from pyruntime.kernels import Target
from pyruntime.kernels.ir.node import for_node
from pyruntime.kernels.rows.groups_candidates import GROUP_NORMS, GroupsProblem
from pyruntime.kernels.rows.reduce_candidates import REDUCTIONS, ReductionProblem, strategy_of
from pyruntime.kernels.rows.rows_candidates import NORMS, SCANS, SOFTMAX, RowsProblem
from pyruntime.kernels.samples import sample
from pyruntime.kernels.selection.candidates import Choices, Family, Noted, Problem
from pyruntime.kernels.variants import VARIANTS
from pyruntime.target import H200
from tests.kernels.folding_cases import GPU, PROCESSOR, TARGETS, WAYS, listed, told


@pytest.mark.parametrize("family", WAYS)
def test_chosen__what_models_ask_for__what_is_listed(family: str) -> None:
    wanted = dict(listed(family))
    assert len(wanted) > 100
    assert {problem: tuple(told(family, problem, t) for t in TARGETS) for problem in wanted} == wanted


@pytest.mark.parametrize("family", WAYS)
def test_chosen__half_precision_or_subgroups__the_same(family: str) -> None:
    shuffling = [replace(t, features=frozenset({"subgroups", "subgroup_size_32"})) for t in TARGETS]
    for problem, _ in list(listed(family))[::7]:
        for target, other in zip(TARGETS, shuffling, strict=True):
            kept = told(family, problem, target)
            assert told(family, problem, target, DType.FLOAT16) == kept
            assert told(family, problem, other) == kept


REDUCED = [
    ReductionProblem(1, 1 << 20, True),
    ReductionProblem(512, 768, True),
    ReductionProblem(768, 256, False),
    ReductionProblem(8, 50257, True, once=True),
]


ROWS = [RowsProblem(1, 4096), RowsProblem(512, 768), RowsProblem(2, 300, 40)]

SAMPLED = [
    *((REDUCTIONS, p) for p in REDUCED),
    *((SOFTMAX, p) for p in ROWS),
    *((NORMS, p) for p in ROWS[:2]),
    *((SCANS, p) for p in ROWS),
    *((GROUP_NORMS, p) for p in (GroupsProblem(4, 50000), GroupsProblem(64, 1000))),
]


@pytest.mark.parametrize(("family", "problem"), SAMPLED, ids=lambda v: getattr(v, "name", "") or v.key)
@pytest.mark.parametrize("target", [GPU, PROCESSOR], ids=["gpu", "processor"])
def test_sample__folding__runs_the_candidate(family: Family[Any, Any], problem: Problem, target: Target) -> None:
    made = {}
    for candidate in family.rank(problem, target).others:
        if candidate.cost is not None:
            choices = Choices()
            made[candidate.name] = sample(Noted(family, problem), candidate.name, for_node(target, choices=choices))
            assert next(iter(choices.problems)).problem == problem
            assert len(made[candidate.name]) == candidate.dispatches
    assert len({tuple((d.kernel.name, d.grid) for d in m) for m in made.values()}) == len(made) > 1


def test_rank__reduction__reasons_of_those_that_do_not_apply() -> None:
    def reasons(target: Target, *problem: Any) -> dict[str, str]:
        return {c.name: c.reason for c in REDUCTIONS.rank(ReductionProblem(*problem), target).others}

    assert "more than 32 elements" in reasons(GPU, 100, 32, True)["shared_8"]
    assert "no tensor type" in reasons(GPU, 1, 1 << 20, True, True)["shared_split"]
    assert "too short" in reasons(GPU, 1, 100, True)["each_split"]
    assert "1024 rows" in reasons(GPU, 4096, 768, True)["shared_4"]
    assert "no more invocations" in reasons(GPU, 2, 4096, True)["shared_4"]
    off = replace(GPU, disabled=frozenset({"reduce_lanes"}))
    assert reasons(off, 4096, 768, True)["shared_8"] == "reduce_lanes is switched off"


def test_rank__rows__reasons_of_those_that_do_not_apply() -> None:
    def reasons(count: int, length: int) -> dict[str, str]:
        return {c.name: c.reason for c in NORMS.rank(RowsProblem(count, length), GPU).others}

    assert "more than 32 elements" in reasons(9, 20)["shared_wide"]
    assert "256 rows" in reasons(300, 4096)["shared_wide"]
    assert "1024 rows" in reasons(1024, 768)["shared_4"]
    assert "no more invocations" in reasons(8, 768)["shared_wide"]


def test_rank__group_norms__reasons_of_those_that_do_not_apply() -> None:
    reasons = {c.name: c.reason for c in GROUP_NORMS.rank(GroupsProblem(600, 9000), GPU).others}
    assert "keep the device busy" in reasons["split"]
    least = replace(GPU, limits=replace(GPU.limits, invocations=128))
    reasons = {c.name: c.reason for c in GROUP_NORMS.rank(GroupsProblem(4, 9000), least).others}
    assert "256 invocations" in reasons["one_256"]
    assert "256 invocations" in reasons["split"]


def test_choose__reduction_on_few_units__fewer_shares() -> None:
    problem = ReductionProblem(1, 1 << 24, True)
    laptop = replace(GPU, rates=replace(H200, units=8, flops=H200.flops * 8 / H200.units))
    few, many = (strategy_of(REDUCTIONS.choose(problem, t).way, problem, t) for t in (laptop, GPU))
    assert 1 < few.segments < many.segments


@pytest.mark.parametrize("family", [REDUCTIONS, SOFTMAX, NORMS, SCANS, GROUP_NORMS], ids=lambda f: f.name)
def test_switches__of_folding__are_the_variants(family: Family[Any, Any]) -> None:
    named = {s for c in family.candidates for s in c.switches}
    assert named == family.switches.keys() <= VARIANTS.keys()

"""How invocations join their shares: by shuffles where subgroups have one known size. e2e/ops/test_lanes.py runs it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pyruntime.kernels import Target
from pyruntime.kernels.ir.costs import microseconds
from pyruntime.kernels.legalize import legalize
from pyruntime.kernels.rows.rows_candidates import SOFTMAX, RowsProblem, lanes_of
from pyruntime.kernels.selection.lanes import REDUCING, barriers, priced, shuffled
from pyruntime.target import H200
from tests.kernels.lane_cases import CASES, lowered, of_size, shuffles

GPU = Target(vendor="nvidia")


@pytest.mark.parametrize("size", [4, 8, 16, 32, 64, 128])
@pytest.mark.parametrize("name", CASES)
def test_shuffles__every_size__same_dispatches_in_less_workgroup_memory(name: str, size: int) -> None:
    op, inputs = CASES[name]
    by_size, plain = (legalize(GPU, lowered(op, inputs, of_size(GPU, s))) for s in (size, 0))
    assert [(d.grid, d.params, d.flops) for d in by_size] == [(d.grid, d.params, d.flops) for d in plain]
    for new, old in zip(by_size, plain, strict=True):
        assert new.kernel.module.invocations == old.kernel.module.invocations
        assert new.kernel.module.workgroup_bytes <= old.kernel.module.workgroup_bytes
        assert ("subgroups" in new.kernel.module.extensions) == ("reduced_lanes" in new.kernel.module.functions)
        assert old.kernel.module.extensions == ()
        text = new.kernel.wgsl()
        assert "//#" not in text
        assert text.startswith("enable subgroups;") == bool(new.kernel.module.extensions)
    assert shuffles(op, inputs, of_size(GPU, size)) or size < 16


def test_shuffles__switched_off_or_sizes_that_differ__nowhere() -> None:
    for op, inputs in CASES.values():
        plain = [d.kernel for d in lowered(op, inputs, GPU)]
        for target in (of_size(GPU, 0), replace(GPU, features=frozenset({"subgroups"}))):
            assert [d.kernel for d in lowered(op, inputs, target)] == plain


@pytest.mark.parametrize(
    ("lanes", "subgroup", "apart", "expected"),
    [
        *((8, 32, 1, 0), (64, 64, 1, 0), (64, 32, 1, 1), (256, 32, 1, 1), (1024, 32, 1, 2), (256, 4, 1, 2)),
        *((1024, 4, 1, 3), (64, 32, 4, 1), (8, 32, 4, 0), (64, 4, 4, 2), (128, 2, 2, 3), (32, 128, 1, 0)),
    ],
)
def test_barriers__lanes_and_sizes__eight_shares_at_a_time(
    lanes: int, subgroup: int, apart: int, expected: int
) -> None:
    assert barriers(lanes, subgroup, apart) == expected
    told = shuffled(of_size(GPU, subgroup), lanes, apart)
    assert ("ACROSS" in told) == (expected > 0)
    op, inputs = CASES["sum"]
    (made,) = lowered(op, inputs, of_size(GPU, subgroup))
    assert bool(made.kernel.module.workgroup) == (subgroup < 256)


def test_work__shuffles__cost_less_than_workgroup_memory() -> None:
    for lanes in (2, 16, 64, 256, 1024):
        plain, shuffling = (microseconds(H200, REDUCING.work(8, 8192, lanes, 0, size)) for size in (0, 32))
        assert shuffling < plain
    assert REDUCING.work(8, 8192, 1, 0, 32) == REDUCING.work(8, 8192, 1, 0)


def test_choice__switched_off__the_same_lanes_and_so_the_same_bits() -> None:
    for length in (40, 300, 768, 4096, 20000):
        problem = RowsProblem(8, length)
        assert lanes_of(SOFTMAX, problem, of_size(GPU, 32)) == lanes_of(SOFTMAX, problem, of_size(GPU, 0))
    on, off = (SOFTMAX.rank(RowsProblem(8, 4096), of_size(GPU, size)).others for size in (32, 0))
    assert on == off


def test_priced__processor__as_in_workgroup_memory() -> None:
    assert (priced(of_size(GPU, 32)), priced(GPU)) == (32, 0)
    assert priced(of_size(replace(GPU, vendor="google"), 4)) == 0

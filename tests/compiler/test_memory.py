"""Memory planning: no two live storages overlap, and arenas stay near the lower bound."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyruntime.compiler.build import build_plan
from pyruntime.compiler.memory import ALIGNMENT, Storage, lower_bound, pack
from pyruntime.compiler.plan import GpuSegment, Plan, Region, Space
from pyruntime.ir import TypedGraph
from pyruntime.kernels import Target
from tests.compiler.graphs import random_graph


def overlaps(a: Storage, b: Storage) -> bool:
    """Alive at one step, in one arena, sharing a byte."""
    alive = a.first <= b.last and b.first <= a.last
    bytes_ = a.offset < b.offset + b.nbytes and b.offset < a.offset + a.nbytes
    return alive and a.arena == b.arena and bytes_


storages = st.lists(
    st.tuples(st.integers(1, 40), st.integers(0, 30), st.integers(0, 12)).map(
        lambda t: Storage([str(t)], t[0] * ALIGNMENT, t[1], t[1] + t[2])
    ),
    min_size=1,
    max_size=60,
)


@given(storages)
@settings(max_examples=150, deadline=None)
def test_pack__random_lifetimes__nothing_alive_overlaps(items: list[Storage]) -> None:
    sizes = pack(items, 1 << 40)
    assert not [pair for pair in itertools.combinations(items, 2) if overlaps(*pair)]
    assert all(s.offset % ALIGNMENT == 0 and s.offset + s.nbytes <= sizes[s.arena] for s in items)
    assert sum(sizes) >= lower_bound(items)


@given(storages, st.integers(40, 80))
@settings(max_examples=60, deadline=None)
def test_pack__small_arenas__each_stays_within_capacity(items: list[Storage], units: int) -> None:
    sizes = pack(items, units * ALIGNMENT)
    assert all(size <= units * ALIGNMENT for size in sizes)
    assert not [pair for pair in itertools.combinations(items, 2) if overlaps(*pair)]


def test_lower_bound__two_disjoint_lifetimes__is_the_larger() -> None:
    assert lower_bound([Storage(["a"], 512, 0, 1), Storage(["b"], 256, 2, 3)]) == 512
    assert lower_bound([Storage(["a"], 512, 0, 2), Storage(["b"], 256, 2, 3)]) == 768


def encoder(layers: int) -> list[Storage]:
    """What is alive in a transformer's layers: residual, merged projections, attention, the wide product, its like.

    Placed by size alone this takes 10/9 of the lower bound.
    """
    found = [Storage(["x"], 2, 0, 1), Storage(["r"], 1, 1, 2), Storage(["s"], 1, 2, 9)]
    found += [Storage(["qkv"], 3, 5, 6), Storage(["a"], 1, 6, 7), Storage(["wide"], 4, 7, 8)]
    for at in range(8, 8 + 7 * layers, 7):
        found += [
            Storage(["residual"], 1, at, at + 4),
            Storage(["wide"], 4, at + 1, at + 2),
            Storage(["gelu"], 4, at + 2, at + 3),
            Storage(["next"], 1, at + 3, at + 8),
            Storage(["qkv"], 3, at + 4, at + 5),
            Storage(["attention"], 1, at + 5, at + 6),
            Storage(["sum"], 4, at + 6, at + 7),
        ]
    for storage in found:
        storage.nbytes *= 100 * ALIGNMENT
    return found


@pytest.mark.parametrize("layers", [1, 4, 12, 24])
def test_pack__layers_of_an_encoder__come_within_5_percent_of_the_lower_bound(layers: int) -> None:
    items = encoder(layers)
    (size,) = pack(items, 1 << 40)
    assert size <= 1.05 * lower_bound(items)
    assert not [pair for pair in itertools.combinations(items, 2) if overlaps(*pair)]


def arena_regions(plan: Plan) -> list[tuple[int, Region]]:
    """(step, region) of every arena region each command binds."""
    times = itertools.count()
    found = []
    for segment in plan.steps:
        if not isinstance(segment, GpuSegment):
            continue  # a view taken on the host
        for command in segment.commands:
            step = next(times)
            found += [(step, r) for r in command.regions if r.space is Space.ARENA]
        next(times)
    return found


@given(random_graph())
@settings(max_examples=80, deadline=None)
def test_plan__random_graph__regions_lie_in_live_storages_that_do_not_overlap(graph: TypedGraph) -> None:
    plan = build_plan(graph, Target())
    live = plan.memory.storages
    assert not [pair for pair in itertools.combinations(live, 2) if overlaps(*pair)]
    for step, region in arena_regions(plan):
        assert any(
            s.arena == region.index
            and s.offset == region.offset
            and region.nbytes <= s.nbytes
            and s.first <= step <= s.last
            for s in live
        ), f"step {step} binds {region}, which no live storage owns"
    for command in plan.commands:
        spans = [(r.space, r.index, r.offset) for r in command.regions]
        assert len(spans) == len(set(spans)), "one region is bound twice"


@given(random_graph())
@settings(max_examples=40, deadline=None)
def test_plan__random_graph__peak_between_bound_and_no_reuse(graph: TypedGraph) -> None:
    memory = build_plan(graph, Target()).memory
    assert memory.lower_bound <= memory.peak <= memory.total_without_reuse

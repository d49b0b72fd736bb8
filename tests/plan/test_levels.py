"""Nodes by levels, each value in memory of its own."""

from __future__ import annotations

from hypothesis import given, settings

from pyruntime.ir import TypedGraph
from pyruntime.kernels import Target
from pyruntime.plan.build import build_plan
from pyruntime.plan.levels import by_levels
from pyruntime.plan.placement import place
from pyruntime.plan.schedule import schedule
from pyruntime.plan.verify import verify
from tests.plan.graphs import random_graph
from tests.plan.test_order import branches, respects_reads


def test_branches__by_levels__take_turns() -> None:
    graph = branches(3)
    running, _ = place(graph, Target())
    ordered = [p.node.outputs[0] for p in by_levels(schedule(running, [*graph.inputs, *graph.constants]))]
    assert ordered == [*(f"{kind}{i}" for kind in ("wide", "soft", "small") for i in range(3)), "y"]


@given(random_graph())
@settings(max_examples=150, deadline=None)
def test_any_graph__by_levels__what_nodes_read_is_there(graph: TypedGraph) -> None:
    running, _ = place(graph, Target())
    before = schedule(running, [*graph.inputs, *graph.constants])
    after = by_levels(before)
    assert sorted(map(id, after)) == sorted(map(id, before))
    assert respects_reads(after, {*graph.inputs, *graph.constants})


@given(random_graph())
@settings(max_examples=50, deadline=None)
def test_any_graph__without_shared_memory__is_a_plan_whose_buffers_are_of_one_value(graph: TypedGraph) -> None:
    plan = build_plan(graph, Target(disabled=frozenset({"node_order", "shared_memory"})))
    verify(plan)
    assert len(plan.arenas) == len(plan.memory.storages)

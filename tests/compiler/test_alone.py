"""Each value in memory of its own."""

from __future__ import annotations

from hypothesis import given, settings

from pyruntime.compiler.build import build_plan
from pyruntime.compiler.verify import verify
from pyruntime.ir import TypedGraph
from pyruntime.kernels import Target
from tests.compiler.graphs import random_graph


@given(random_graph())
@settings(max_examples=50, deadline=None)
def test_any_graph__without_shared_memory__is_a_plan_whose_buffers_are_of_one_value(graph: TypedGraph) -> None:
    plan = build_plan(graph, Target(disabled=frozenset({"shared_memory"})))
    verify(plan)
    assert len(plan.arenas) == len(plan.memory.storages)

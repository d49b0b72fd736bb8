"""The order of nodes: one that needs less memory where there is one, and never a wrong one."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
from hypothesis import given, settings

from pyruntime.compiler import order
from pyruntime.compiler.build import build_plan
from pyruntime.compiler.order import less_memory
from pyruntime.compiler.placement import Placed, place
from pyruntime.compiler.plan import Plan
from pyruntime.compiler.schedule import schedule
from pyruntime.ir import Constant, DType, Node, TensorType, TypedGraph
from pyruntime.kernels import Target
from tests.compiler.graphs import node, random_graph, typed_graph

MODELS_ORDER = Target(disabled=frozenset({"less_memory"}))


def bound(plan: Plan) -> int:
    """The most bytes alive at a step."""
    return plan.memory.lower_bound


def ordered(graph: TypedGraph) -> tuple[list[Placed], list[Placed]]:
    """The nodes that run: in the model's order, and in the one found."""
    running, _ = place(graph, Target())
    before = schedule(running, [*graph.inputs, *graph.constants])
    return before, less_memory(graph, before)


def respects_reads(placed: list[Placed], there: set[str]) -> bool:
    """Whether every node comes after those that make what it reads."""
    made = set(there)
    for p in placed:
        if not made.issuperset(p.reads):
            return False
        made.update(p.node.outputs)
    return True


def branches(late: int) -> TypedGraph:
    """One large value for each of `late` branches, made at the start, each used up to few numbers only at the end."""
    side = TensorType(DType.FLOAT, (64, 64))
    nodes: list[Node] = [node("Transpose", ["x"], [f"wide{i}"]) for i in range(late)]
    nodes += [node("Softmax", [f"wide{i}"], [f"soft{i}"]) for i in range(late)]
    nodes += [node("ReduceMax", [f"soft{i}", "axes"], [f"small{i}"], keepdims=1) for i in range(late)]
    nodes += [node("Concat", [f"small{i}" for i in range(late)], ["y"], axis=1)]
    return typed_graph(nodes, {"x": side}, ["y"], {"axes": Constant.from_array(np.array([1]))})


def test_branches__values_made_long_before_they_are_used__wait_for_their_turn() -> None:
    graph = branches(6)
    before, after = ordered(graph)
    assert [p.node.name for p in before] != [p.node.name for p in after]
    assert sorted(p.node.name for p in before) == sorted(p.node.name for p in after)
    assert respects_reads(after, {*graph.inputs, *graph.constants})
    square = 64 * 64 * 4
    assert bound(build_plan(branches(6), MODELS_ORDER)) >= 7 * square
    assert bound(build_plan(branches(6), Target())) <= 3 * square + 7 * 256


def test_chain__one_order_only__stays() -> None:
    side = TensorType(DType.FLOAT, (8, 8))
    names = ["x", *(f"v{i}" for i in range(5))]
    nodes = [node("Softmax", [a], [b]) for a, b in itertools.pairwise(names)]
    before, after = ordered(typed_graph(nodes, {"x": side}, [names[-1]]))
    assert after == before


def test_order__given_twice__is_the_same() -> None:
    assert [p.node.name for p in ordered(branches(5))[1]] == [p.node.name for p in ordered(branches(5))[1]]


@given(random_graph())
@settings(max_examples=150, deadline=None)
def test_order__random_graphs__holds_what_nodes_read_and_needs_no_more(graph: TypedGraph) -> None:
    before, after = ordered(graph)
    assert sorted(map(id, before)) == sorted(map(id, after))
    assert respects_reads(after, {*graph.inputs, *graph.constants})
    copy = replace(graph, constants=dict(graph.constants))
    assert bound(build_plan(graph, Target())) <= bound(build_plan(copy, MODELS_ORDER))


@given(random_graph())
@settings(max_examples=100, deadline=None)
def test_bytes_alive__of_the_models_order__are_those_of_the_plan(graph: TypedGraph) -> None:
    before, _ = ordered(graph)
    # Of a node of several dispatches the plan knows more; of a view taken on the host there is nothing to order.
    if all(p.alias is not None or len(p.dispatches) == 1 for p in before):
        values = order._Values.of(graph, before)
        assert values is not None
        assert values.peak == bound(build_plan(graph, MODELS_ORDER))

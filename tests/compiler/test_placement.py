"""Which nodes are placed, in what order, and what is told of them."""

from __future__ import annotations

import itertools

import pytest

from pyruntime.compiler.placement import Placed, place
from pyruntime.errors import InvalidGraph
from pyruntime.ir import DType, TensorType
from pyruntime.kernels import Target
from pyruntime.ops.base import Op
from tests.compiler.graphs import node, typed_graph

SMALL, LARGE = TensorType(DType.FLOAT, (4, 8)), TensorType(DType.FLOAT, (64, 96))


def test_place__nodes_of_several_sizes__the_largest_are_told_first() -> None:
    nodes = [node("Relu", ["x"], ["a"]), node("MatMul", ["z", "w"], ["b"]), node("Relu", ["z"], ["c"])]
    inputs = {"x": SMALL, "z": LARGE, "w": TensorType(DType.FLOAT, (96, 64))}
    told: list[tuple[int, str]] = []

    def tell(at: int, placed: Placed, times: int) -> None:
        told.append((at, placed.node.op.op_type))
        assert times == 1

    graph = typed_graph(nodes, inputs, ["a", "b", "c"])
    running, idle = place(graph, Target(), tell)
    assert told == [(1, "MatMul"), (2, "Relu"), (0, "Relu")]
    assert [p.node for p in running] == list(graph.nodes) and not idle


def test_place__equal_nodes__one_is_told_for_all_and_the_others_after_all_kinds() -> None:
    """The shaders of every kind are asked for before what is known already is gone through."""
    chain = ["x", "a", "b", "c"]
    nodes = [node("Relu", [given], [made]) for given, made in itertools.pairwise(chain)]
    nodes += [node("Sigmoid", ["c"], ["d"]), node("Add", ["d", "s"], ["y"])]
    told: list[tuple[int, int]] = []
    graph = typed_graph(nodes, {"x": LARGE, "s": TensorType(DType.FLOAT, (1,))}, ["y"])
    running, _ = place(graph, Target(), lambda at, placed, times: told.append((at, times)))
    assert [at for at, _ in told] == [2, 4, 3, 1, 0] and dict(told) == {2: 3, 4: 1, 3: 1, 1: 0, 0: 0}
    assert [p.node for p in running] == list(graph.nodes)


def test_place__node_that_cannot_be_lowered__fails_where_something_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def lower(self: Op, target: Target, *inputs: TensorType) -> None:
        raise InvalidGraph("it is wrong")

    nodes = [node("Relu", ["x"], ["u"]), node("Sigmoid", ["x"], ["y"])]
    monkeypatch.setattr(type(nodes[0].op), "lower", lower)
    running, idle = place(typed_graph(nodes, {"x": SMALL}, ["y"]), Target())
    assert [[p.node.op.op_type for p in found] for found in (running, idle)] == [["Sigmoid"], ["Relu"]]
    with pytest.raises(InvalidGraph, match="it is wrong"):
        place(typed_graph(nodes, {"x": SMALL}, ["u", "y"]), Target())

"""Which nodes are placed, in what order, and what is told of them."""

from __future__ import annotations

import pytest

from pyruntime.errors import InvalidGraph
from pyruntime.ir import DType, TensorType
from pyruntime.kernels import Target
from pyruntime.ops.base import Op
from pyruntime.plan.placement import Placed, place
from tests.plan.graphs import node, typed_graph

SMALL, LARGE = TensorType(DType.FLOAT, (4, 8)), TensorType(DType.FLOAT, (64, 96))


def test_place__nodes_of_several_sizes__the_largest_are_told_first() -> None:
    nodes = [node("Relu", ["x"], ["a"]), node("MatMul", ["z", "w"], ["b"]), node("Relu", ["z"], ["c"])]
    inputs = {"x": SMALL, "z": LARGE, "w": TensorType(DType.FLOAT, (96, 64))}
    told: list[tuple[int, str]] = []

    def tell(at: int, placed: Placed) -> None:
        told.append((at, placed.node.op.op_type))

    running, idle = place(typed_graph(nodes, inputs, ["a", "b", "c"]), Target(), tell)
    assert told == [(1, "MatMul"), (2, "Relu"), (0, "Relu")]
    assert [p.node for p in running] == nodes and not idle


def test_place__node_that_cannot_be_lowered__fails_where_something_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def lower(self: Op, target: Target, *inputs: TensorType) -> None:
        raise InvalidGraph("it is wrong")

    nodes = [node("Relu", ["x"], ["u"]), node("Sigmoid", ["x"], ["y"])]
    monkeypatch.setattr(type(nodes[0].op), "lower", lower)
    running, idle = place(typed_graph(nodes, {"x": SMALL}, ["y"]), Target())
    assert [[p.node.op.op_type for p in found] for found in (running, idle)] == [["Sigmoid"], ["Relu"]]
    with pytest.raises(InvalidGraph, match="it is wrong"):
        place(typed_graph(nodes, {"x": SMALL}, ["u", "y"]), Target())

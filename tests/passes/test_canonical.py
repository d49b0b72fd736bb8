"""canonical: older ways to say a thing become today's; everything else stays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from pyruntime.ir import Node
from pyruntime.ops.axis_broadcast import AxisBroadcast
from pyruntime.ops.registry import op_class
from pyruntime.passes import canonical, fuse_elementwise
from tests.passes.support import apply, graph_of, node, op_types


def old(op_type: str, **attributes: Any) -> Node:
    """y = op(a, b) of opset 6."""
    return replace(node("Add", ["a", "b"], ["y"]), op=op_class(op_type, "", 6)(**attributes))


def test_canonical__axis_of_opset_6__becomes_a_reshape_and_todays_operator() -> None:
    graph = graph_of([old("Sub", broadcast=1, axis=1)], {"a": (2, 3, 4), "b": (3,)}, ["y"])
    assert apply(canonical.run, graph)
    assert op_types(graph) == ["Reshape", "Sub"]
    assert not isinstance(graph.nodes[1].op, AxisBroadcast)


def test_canonical__constant_operand_of_opset_6__stays_constant() -> None:
    table = {"b": np.array([1.0, 2.0, 3.0], np.float32)}
    graph = graph_of([old("Mul", broadcast=1, axis=1)], {"a": (2, 3, 4)}, ["y"], table)
    assert apply(canonical.run, graph)
    assert graph.nodes[1].inputs[1] in graph.static


def test_canonical__one_shape_in_opset_6__needs_no_reshape() -> None:
    graph = graph_of([old("Add")], {"a": (2, 3), "b": (2, 3)}, ["y"])
    assert apply(canonical.run, graph)
    assert op_types(graph) == ["Add"]


def test_canonical__castlike__becomes_cast_and_reads_one_input() -> None:
    graph = graph_of([node("CastLike", ["a", "b"], ["y"])], {"a": (2, 3), "b": (4, 5, 6)}, ["y"])
    assert apply(canonical.run, graph)
    assert op_types(graph) == ["Cast"] and graph.nodes[0].inputs == ("a",)


def test_canonical__todays_operators__changes_nothing() -> None:
    graph = graph_of([node("Add", ["a", "b"], ["y"])], {"a": (2, 3), "b": (3,)}, ["y"])
    assert not apply(canonical.run, graph)


def test_fuse_elementwise__like_of_a_larger_shape__is_not_broadcast() -> None:
    nodes = [node("Abs", ["a"], ["t"]), node("CastLike", ["t", "b"], ["y"])]
    graph = graph_of(nodes, {"a": (2, 1, 4)}, ["y"], {"b": np.zeros((2, 3, 4), np.int32)})
    assert not apply(fuse_elementwise.run, graph)

"""Bodies of control flow: scopes and captured values; onnxruntime is the oracle."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from pyruntime.errors import Fail
from pyruntime.ir import DType, TensorType, known
from pyruntime.ops.interpreter import interpret
from tests.onnx.models import (
    C,
    V,
    X,
    branch,
    check_graph,
    imported,
    model,
    node,
    of,
    run,
)


def test_subgraph__two_levels_down__captures_through_both() -> None:
    inner = branch([node("Add", ["x", "w"], ["s"]), node("Add", ["s", "t"], ["r"])])
    outer = branch([node("Neg", ["x"], ["t"]), node("If", ["c"], ["u"], then_branch=inner, else_branch=inner)], "u")
    proto = model([node("If", ["c"], ["y"], then_branch=outer, else_branch=outer)], [of([1, 2, 3, 4], "w")], [X, C])
    run(proto, {"x": V, "c": np.array(True)})
    top = imported(proto).graph.nodes[0]
    assert top.inputs == ("c", "x", "c", "w")


def test_subgraph__branches_with_the_same_names__are_apart() -> None:
    then = branch([node("Neg", ["x"], ["t"]), node("Neg", ["t"], ["r"])])
    other = branch([node("Abs", ["x"], ["t"]), node("Neg", ["t"], ["r"])])
    proto = model([node("If", ["c"], ["y"], then_branch=then, else_branch=other)], inputs=[X, C])
    for condition in (True, False):
        run(proto, {"x": V, "c": np.array(condition)})


def test_subgraph__value_named_like_an_outer_one__is_its_own() -> None:
    """Shadowing is against the rules and yet found: the inner value is meant inside."""
    then = branch([node("Neg", ["x"], ["t"]), node("Add", ["t", "x"], ["r"])])
    nodes = [
        node("Abs", ["x"], ["t"]),
        node("If", ["c"], ["y"], then_branch=then, else_branch=then),
        node("Neg", ["t"], ["z"]),
    ]
    graph = imported(model(nodes, inputs=[X, C])).graph
    check_graph(graph)
    body = next(n for n in graph.nodes if n.op.op_type == "If").op.then_branch  # type: ignore[attr-defined]
    assert body.captures == ("x",) and body.nodes[0].outputs != ("t",)


def test_subgraph__output_of_the_outer_graph__is_captured() -> None:
    graph = imported(
        model([node("If", ["c"], ["y"], then_branch=branch([], "x"), else_branch=branch([], "x"))], inputs=[X, C])
    ).graph
    assert graph.nodes[0].inputs == ("c", "x")
    values = interpret(
        graph,
        {
            "x": known(TensorType(DType.FLOAT, (4,)), V, "x"),
            "c": known(TensorType(DType.BOOL, ()), np.array(True), "c"),
        },
    )
    np.testing.assert_array_equal(values["y"].value(), V)


def test_subgraph__using_a_later_value__waits_for_it() -> None:
    then = branch([node("Neg", ["late"], ["r"])])
    nodes = [node("If", ["c"], ["y"], then_branch=then, else_branch=then), node("Abs", ["x"], ["late"])]
    assert [n.op.op_type for n in imported(model(nodes, inputs=[X, C])).graph.nodes] == ["Abs", "If"]


def test_subgraph__using_what_its_node_makes__is_a_cycle() -> None:
    then = branch([node("Neg", ["y"], ["r"])])
    with pytest.raises(Fail, match="acyclic"):
        imported(model([node("If", ["c"], ["y"], then_branch=then, else_branch=then)], inputs=[X, C]))


def test_loop__body_with_initializers_and_captures__equals_onnxruntime() -> None:
    i, keep = helper.make_tensor_value_info("i", 7, []), helper.make_tensor_value_info("keep", 9, [])
    v, v2 = helper.make_tensor_value_info("v", 1, None), helper.make_tensor_value_info("v2", 1, None)
    keep2, scan = helper.make_tensor_value_info("keep2", 9, []), helper.make_tensor_value_info("scan", 1, None)
    nodes = [
        node("Mul", ["v", "two"], ["d"]),
        node("Add", ["d", "x"], ["v2"]),
        node("Identity", ["v2"], ["scan"]),
        node("Identity", ["keep"], ["keep2"]),
    ]
    body = helper.make_graph(nodes, "body", [i, keep, v], [keep2, v2, scan], [of(2.0, "two")])
    outs = [helper.make_tensor_value_info("y", 1, None), helper.make_tensor_value_info("s", 1, None)]
    proto = model([node("Loop", ["n", "", "x"], ["y", "s"], body=body)], [of(3, "n", "i8")], outputs=outs)
    run(proto, {"x": V})

"""Model-local functions, inlined; onnxruntime is the oracle of what they mean."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from onnx import AttributeProto, NodeProto, helper

from pyruntime.errors import Fail, InvalidGraph, OrtError
from pyruntime.ir import DType, TensorType, known
from pyruntime.onnx.reader import Limits
from pyruntime.ops.base import Op
from pyruntime.ops.interpreter import interpret
from tests.onnx.models import (
    C,
    V,
    X,
    branch,
    check_graph,
    function,
    imported,
    model,
    node,
    of,
    referring,
    run,
)


def test_function__called_twice__keeps_its_values_apart() -> None:
    twice = function("Twice", ["a"], ["b"], [node("Add", ["a", "a"], ["t"]), node("Relu", ["t"], ["b"])])
    proto = model([node("Twice", ["x"], ["t"], domain="f"), node("Twice", ["t"], ["y"], domain="f")], functions=[twice])
    run(proto, {"x": V})
    assert [n.outputs for n in imported(proto).graph.nodes] == [("Twice/t",), ("t",), ("Twice_2/t",), ("y",)]


def test_function__attributes__are_given_defaulted_or_left_out() -> None:
    body = [
        referring(node("LeakyRelu", ["a"], ["t"]), "alpha", "slope", AttributeProto.FLOAT),
        referring(node("Elu", ["t"], ["b"]), "alpha", "beta", AttributeProto.FLOAT),
    ]
    leaky = function("Leaky", ["a"], ["b"], body, ["slope"], beta=0.5)
    choices: list[dict[str, Any]] = [{}, {"slope": 0.25}, {"beta": 2.0}, {"slope": 0.125, "beta": 3.0}]
    for given in choices:
        run(model([node("Leaky", ["x"], ["y"], domain="f", **given)], functions=[leaky]), {"x": V})


def test_function__nested__passes_attributes_and_values_on() -> None:
    inner = function(
        "Inner", ["a"], ["b"], [referring(node("Elu", ["a"], ["b"]), "alpha", "k", AttributeProto.FLOAT)], ["k"]
    )
    call = referring(node("Inner", ["a"], ["t"], domain="f"), "k", "outer_k", AttributeProto.FLOAT)
    outer = function("Outer", ["a"], ["b"], [call, node("Add", ["t", "a"], ["b"])], ["outer_k"])
    run(model([node("Outer", ["x"], ["y"], domain="f", outer_k=0.3)], functions=[outer, inner]), {"x": V})


def test_function__optional_input_left_out__is_absent_inside() -> None:
    clip = function("Limit", ["a", "low", "high"], ["b"], [node("Clip", ["a", "low", "high"], ["b"])])
    one = of(1.0, "one")
    for inputs in (["x", "one"], ["x", "", "one"], ["x"]):
        run(model([node("Limit", inputs, ["y"], domain="f")], [one], functions=[clip]), {"x": V})


def test_function__returning_an_input_and_a_value_twice__copies() -> None:
    made = function("Same", ["a"], ["a", "b", "b"], [node("Neg", ["a"], ["b"])])
    outs = [helper.make_tensor_value_info(n, 1, None) for n in ("p", "q", "r")]
    graph = imported(model([node("Same", ["x"], ["p", "q", "r"], domain="f")], outputs=outs, functions=[made])).graph
    check_graph(graph)
    values = interpret(graph, {"x": known(TensorType(DType.FLOAT, (4,)), V, "x")})
    np.testing.assert_array_equal(values["p"].value(), V)
    np.testing.assert_array_equal(values["q"].value(), -V)
    np.testing.assert_array_equal(values["r"].value(), -V)


def test_function__unused_outputs__are_made_inside() -> None:
    made = function("Two", ["a"], ["b", "c"], [node("Neg", ["a"], ["b"]), node("Abs", ["b"], ["c"])])
    run(model([node("Two", ["x"], ["", "y"], domain="f")], functions=[made]), {"x": V})
    graph = imported(model([node("Two", ["x"], ["y"], domain="f")], functions=[made])).graph  # onnxruntime refuses it
    assert [n.outputs for n in graph.nodes] == [("y",), ("Two/c",)]


def test_function__subgraphs_inside__capture_the_calls_values() -> None:
    then = branch([node("Add", ["a", "t"], ["r"])])
    leaky = referring(node("LeakyRelu", ["t"], ["r"]), "alpha", "k", AttributeProto.FLOAT)
    other = branch([leaky])
    body = [node("Neg", ["a"], ["t"]), node("If", ["c"], ["b"], then_branch=then, else_branch=other)]
    chosen = function("Chosen", ["a", "c"], ["b"], body, ["k"])
    nodes = [
        node("Chosen", ["x", "c"], ["t"], domain="f", k=0.5),
        node("Chosen", ["t", "c"], ["y"], domain="f", k=0.25),
    ]
    for condition in (True, False):
        run(model(nodes, inputs=[X, C], functions=[chosen]), {"x": V, "c": np.array(condition)})


def test_function__called_in_a_subgraph__captures_its_arguments() -> None:
    add = function("Plus", ["a", "b"], ["c"], [node("Add", ["a", "b"], ["t"]), node("Identity", ["t"], ["c"])])
    branch = helper.make_graph(
        [node("Plus", ["x", "w"], ["r"], domain="f")], "b", [], [helper.make_tensor_value_info("r", 1, None)]
    )
    proto = model(
        [node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)],
        [of([1, 2, 3, 4], "w")],
        [X, C],
        functions=[add],
    )
    run(proto, {"x": V, "c": np.array(True)})
    item = imported(proto).graph.nodes[0]
    assert item.inputs == ("c", "x", "w")


def test_function__own_opset__is_used_inside() -> None:
    """Softmax flattened to a matrix before opset 13; onnxruntime refuses mixed versions, so the class is the proof."""
    old = helper.make_function("f", "Old", ["a"], ["b"], [node("Softmax", ["a"], ["b"])], [helper.make_opsetid("", 11)])
    nodes = [node("Old", ["x"], ["t"], domain="f"), node("Softmax", ["t"], ["y"])]
    first, second = imported(model(nodes, functions=[old])).graph.nodes
    assert isinstance(first.op, Op) and isinstance(second.op, Op)
    assert 11 in first.op.opsets and 11 not in second.op.opsets and 17 in second.op.opsets


def test_function__overloads__are_told_apart() -> None:
    one, two = (function("F", ["a"], ["b"], [node(op_type, ["a"], ["b"])]) for op_type in ("Neg", "Abs"))
    two.overload = "other"
    nodes = [node("F", ["x"], ["t"], domain="f"), node("F", ["t"], ["y"], domain="f", overload="other")]
    assert [n.op.op_type for n in imported(model(nodes, ir=10, functions=[one, two])).graph.nodes] == ["Neg", "Abs"]


def test_function__named_like_an_operator__goes_first() -> None:
    made = function("Relu", ["a"], ["b"], [node("Neg", ["a"], ["b"])])
    made.domain = ""
    proto = model([node("Relu", ["x"], ["y"])])
    proto.functions.append(made)
    assert [n.op.op_type for n in imported(proto).graph.nodes] == ["Neg"]


@pytest.mark.parametrize(
    ("functions", "call", "error", "what"),
    [
        ([("F", ["a"], ["b"], [("F", ["a"], ["b"])])], {}, InvalidGraph, r"f\.F -> f\.F"),
        (
            [("F", ["a"], ["b"], [("G", ["a"], ["b"])]), ("G", ["a"], ["b"], [("F", ["a"], ["b"])])],
            {},
            InvalidGraph,
            "F -> f.G -> f.F",
        ),
        ([("F", ["a"], ["b"], [("Neg", ["zz"], ["b"])])], {}, InvalidGraph, "'zz'"),
        ([("F", ["a"], ["b"], [("Neg", ["x"], ["b"])])], {}, InvalidGraph, "'x'"),
        ([("F", ["a"], ["b"], [])], {}, InvalidGraph, "'b' has no value"),
        ([("F", ["a"], ["b"], [("Neg", ["a"], ["b"]), ("Abs", ["a"], ["b"])])], {}, Fail, "duplicate definition"),
        ([("F", ["a"], ["b"], [("Neg", ["a"], ["a"]), ("Abs", ["a"], ["b"])])], {}, Fail, "duplicate definition"),
        ([("F", ["a", "a"], ["b"], [("Neg", ["a"], ["b"])])], {}, Fail, "duplicate definition"),
        ([("F", ["a"], ["b"], [("Neg", ["a"], ["b"])])] * 2, {}, Fail, "twice"),
        ([("F", [], ["b"], [("Neg", ["a"], ["b"])])], {}, InvalidGraph, "0 inputs"),
        ([("F", ["a"], ["b"], [("Neg", ["a"], ["b"])])], {"k": 1}, InvalidGraph, "no attribute 'k'"),
    ],
)
def test_function__that_is_wrong__is_refused(
    functions: Any, call: dict[str, Any], error: type[OrtError], what: str
) -> None:
    def called(op_type: str, inputs: list[str], outputs: list[str]) -> NodeProto:
        return node(op_type, inputs, outputs, domain="f" if op_type in "FG" else "")

    made = [function(name, ins, outs, [called(*n) for n in nodes]) for name, ins, outs, nodes in functions]
    with pytest.raises(error, match=what):
        imported(model([node("F", ["x"], ["y"], domain="f", **call)], functions=made))


def test_function__attribute_of_another_type_than_its_reference__is_refused() -> None:
    body = [referring(node("Elu", ["a"], ["b"]), "alpha", "k", AttributeProto.FLOAT)]
    made = function("F", ["a"], ["b"], body, ["k"])
    with pytest.raises(InvalidGraph, match="attribute 'alpha' is FLOAT, but the function was given INT for 'k'"):
        imported(model([node("F", ["x"], ["y"], domain="f", k=1)], functions=[made]))


def test_function__doubling_at_every_level__meets_the_limit_of_nodes() -> None:
    made = [function("F0", ["a"], ["b"], [node("Neg", ["a"], ["b"])])]
    for level in range(1, 40):
        inner = f"F{level - 1}"
        body = [node(inner, ["a"], ["t"], domain="f"), node(inner, ["t"], ["b"], domain="f")]
        made.append(function(f"F{level}", ["a"], ["b"], body))
    with pytest.raises(Fail, match="more than 5000 nodes"):
        imported(model([node("F39", ["x"], ["y"], domain="f")], functions=made), limits=Limits(nodes=5000))


@pytest.mark.parametrize(("inputs", "node_inputs"), [(50_000, 1), (1, 50_000)])
def test_function__long_lists_repeated_by_every_call__count_against_the_limit(inputs: int, node_inputs: int) -> None:
    body = node("Max", ["i0"] * node_inputs, ["b"])
    made = function("F", [f"i{n}" for n in range(inputs)], ["b"], [body])
    calls = [node("F", ["x"], [f"v{n}" if n < 9999 else "y"], domain="f") for n in range(10_000)]
    assert Limits().nodes == 200_000
    with pytest.raises(Fail, match="more than 50000 nodes"):
        imported(model(calls, functions=[made]), limits=Limits(nodes=50_000))


def test_function__tensor_inside__is_one_constant_for_all_calls() -> None:
    body = [node("Constant", [], ["w"], value=of([1.0], "")), node("Add", ["a", "w"], ["b"])]
    nodes = [node("F", ["x"], ["t"], domain="f"), node("F", ["t"], ["y"], domain="f")]
    graph = imported(model(nodes, functions=[function("F", ["a"], ["b"], body)])).graph
    first, second = (n.op.value for n in graph.nodes if n.op.op_type == "Constant")  # type: ignore[attr-defined]
    assert first is second


def test_function__chain_of_a_thousand__is_refused() -> None:
    made = [function("F0", ["a"], ["b"], [node("Neg", ["a"], ["b"])])]
    made += [function(f"F{n}", ["a"], ["b"], [node(f"F{n - 1}", ["a"], ["b"], domain="f")]) for n in range(1, 1000)]
    with pytest.raises(Fail, match="nested more than 64 deep"):
        imported(model([node("F999", ["x"], ["y"], domain="f")], functions=made))


def test_labels__of_calls__stay_short_and_apart() -> None:
    """Names are made of names: long ones must not add up."""
    made = [function("F0", ["a"], ["b"], [node("Neg", ["a"], ["t" * 5000]), node("Neg", ["t" * 5000], ["b"])])]
    for level in range(1, 30):
        call = node(f"F{level - 1}", ["a"], ["b"], name="n" * 5000, domain="f")
        made.append(function(f"F{level}", ["a"], ["b"], [call, node("Neg", ["a"], ["u"])]))
    graph = imported(model([node("F29", ["x"], ["y"], domain="f")], functions=made)).graph
    names = [name for n in graph.nodes for name in n.outputs]
    assert max(map(len, names)) < 400 and max(Counter(names).values()) == 1

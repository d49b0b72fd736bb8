"""Nodes that compute in float16, and those that stay in float32."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pyruntime.ir import DType, Node, TypedGraph
from pyruntime.kernels import Target
from pyruntime.ops.registry import newest
from pyruntime.passes.cleanup import dead_code
from pyruntime.passes.quantization import half_precision
from pyruntime.passes.quantization.float32_nodes import values_after
from pyruntime.target import HalfPrecision
from tests.passes.support import copied, evaluate, graph_of, op_types

HALF = Target(half=HalfPrecision())
WEIGHT = np.random.default_rng(1).standard_normal((8, 8)).astype(np.float32)


def named(op_type: str, inputs: list[str], output: str, **attributes: Any) -> Node:
    return Node(newest(op_type, **attributes), tuple(inputs), (output,), output)


def converted(graph: TypedGraph, target: Target = HALF, tolerance: float = 4e-3) -> dict[str, str]:
    """`TypedGraph.precision` after the pass, which a second time finds nothing; the graph computes about the same."""
    random = np.random.default_rng(0)
    feeds = {n: random.standard_normal(graph.tensor(n).shape).astype(graph.tensor(n).dtype.numpy) for n in graph.inputs}
    kinds = {n: graph.tensor(n) for n in (*graph.inputs, *graph.outputs)}
    before = evaluate(graph, feeds)
    graph.float32_values = values_after(graph, target)
    half_precision.run(graph, target)
    graph.verify()
    assert {n: graph.tensor(n) for n in (*graph.inputs, *graph.outputs)} == kinds
    for now, then in zip(evaluate(graph, feeds), before, strict=True):
        np.testing.assert_allclose(now, then, tolerance, tolerance * np.abs(then).max(initial=1e-3))
    again = copied(graph)
    again.float32_values = values_after(again, target)
    found = dict(graph.precision)
    count = len(again.nodes)
    half_precision.run(again, target)
    assert len(again.nodes) == count
    return found


def product(*more: Node, constants: dict[str, Any] | None = None, outputs: list[str] | None = None) -> TypedGraph:
    nodes = [named("MatMul", ["x", "w"], "p"), *more]
    return graph_of(nodes, {"x": (4, 8)}, outputs or [nodes[-1].outputs[0]], {"w": WEIGHT, **(constants or {})})


def test_half_precision__not_wanted__changes_nothing() -> None:
    graph = product(named("Relu", ["p"], "y"))
    assert not half_precision.run(graph, Target()) and op_types(graph) == ["MatMul", "Relu"]


def test_half_precision__product_and_elementwise__compute_in_float16_between_casts() -> None:
    graph = product(named("Relu", ["p"], "y"))
    assert converted(graph) == {"p": "", "y": ""}
    assert sorted(op_types(graph)) == ["Cast", "Cast", "Cast", "MatMul", "Relu"]
    assert graph.tensor("p").dtype is DType.FLOAT16 and graph.tensor("y").dtype is DType.FLOAT


def test_half_precision__weight_of_two_products__is_cast_once() -> None:
    graph = product(named("MatMul", ["p", "w"], "y"))
    converted(graph)
    assert sum(n.op.op_type == "Cast" and n.inputs == ("w",) for n in graph.nodes) == 1


def test_half_precision__weight_that_layers_share_by_identity__is_cast_once() -> None:
    nodes = [named("Identity", ["w"], "same"), named("MatMul", ["x", "w"], "p"), named("MatMul", ["p", "same"], "y")]
    graph = graph_of(nodes, {"x": (4, 8)}, ["y"], {"w": WEIGHT})
    assert converted(graph) == {"p": "", "y": ""}
    assert [n.inputs for n in graph.nodes if n.op.op_type == "Cast"].count(("w",)) == 1
    assert ("same",) not in [n.inputs for n in graph.nodes if n.op.op_type == "Cast"]


def test_half_precision__float16_graph__changes_nothing() -> None:
    nodes = [named("Relu", ["x"], "a"), named("Neg", ["a"], "y")]
    graph = graph_of(nodes, {"x": (4, 8)}, ["y"], dtype=DType.FLOAT16)
    assert converted(graph) == {} and op_types(graph) == ["Relu", "Neg"]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (np.float32(1e5), "float16 ends at 65504"),
        (np.float32(-1e5), "float16 ends at 65504"),
        (np.float32(1e-12), "may become 0"),
        (np.full(8, 1e-9, np.float32), "may become 0"),
    ],
    ids=["large", "negative", "small", "small vector"],
)
def test_half_precision__constant_beyond_the_range__node_stays_in_float32(value: Any, reason: str) -> None:
    nodes = [named("Mul", ["p", "c"], "a"), named("Div", ["a", "c"], "b"), named("MatMul", ["b", "w"], "y")]
    graph = product(*nodes, constants={"c": value})
    found = converted(graph)
    assert reason in found["a"] and "'c'" in found["a"]
    assert found["p"] == found["y"] == ""


def test_half_precision__constant_that_is_added_to_an_input__is_what_the_reason_names() -> None:
    nodes = [named("Add", ["x", "c"], "a"), named("Sub", ["a", "c"], "b"), named("MatMul", ["b", "w"], "y")]
    graph = graph_of(nodes, {"x": (4, 8)}, ["y"], {"w": WEIGHT, "c": np.float32(1e5)})
    found = converted(graph, tolerance=2e-2)
    assert found["a"] == "its constant 'c' has 1e+05, and float16 ends at 65504" and not found["y"]


@pytest.mark.parametrize("value", [np.inf, np.nan, 65504.0, 1e-4])
def test_half_precision__constant_that_float16_has__node_is_converted(value: float) -> None:
    constants = {"c": np.array([value, 1.0], np.float32).repeat(4)}
    graph = product(named("Max", ["p", "c"], "a"), named("MatMul", ["a", "w"], "y"), constants=constants)
    graph.float32_values = []
    half_precision.run(graph, HALF)
    assert graph.precision["a"] == ""


def test_half_precision__weight_with_one_large_element__product_stays_in_float32() -> None:
    weight = WEIGHT.copy()
    weight[3, 5] = 7e4
    graph = product(named("MatMul", ["p", "v"], "y"), constants={"v": weight})
    found = converted(graph)
    assert found["p"] == "" and found["y"] == "its constant 'v' has 7e+04, and float16 ends at 65504"


def test_half_precision__mask_of_the_least_float32__becomes_no_infinity() -> None:
    nodes = [
        named("MatMul", ["x", "w"], "p"),
        named("Cast", ["mask"], "m", to=DType.FLOAT.code),
        named("Mul", ["m", "least"], "bias"),
        named("Expand", ["bias", "shape"], "wide"),
        named("Concat", ["p", "wide"], "both", axis=0),
        named("Softmax", ["both"], "y", axis=-1),
    ]
    constants = {"w": WEIGHT, "least": np.finfo(np.float32).min, "shape": np.array([4, 8])}
    graph = graph_of(nodes, {"x": (4, 8), "mask": (8,)}, ["y"], constants)
    graph.types["mask"] = replace(graph.tensor("mask"), dtype=DType.BOOL)
    graph.float32_values = []
    half_precision.run(graph, HALF)
    graph.verify()
    assert graph.precision["m"] and graph.precision["bias"] and not graph.precision["y"]
    feeds = {"x": np.ones((4, 8), np.float32), "mask": np.ones(8, bool)}
    assert np.isfinite(evaluate(graph, feeds)[0]).all()


def test_half_precision__angles_of_positions__stay_in_float32() -> None:
    """A rotary embedding as transformers exports it: float16 has no odd position above 2048."""
    nodes = [
        named("Cast", ["places"], "f", to=DType.FLOAT.code),
        named("Unsqueeze", ["f", "last"], "column"),
        named("MatMul", ["column", "rates"], "angles"),
        named("Sin", ["angles"], "sin"),
        named("MatMul", ["x", "w"], "p"),
        named("Mul", ["p", "sin"], "y"),
    ]
    rates = (10.0 ** -np.arange(8)).astype(np.float32)[None]
    graph = graph_of(nodes, {"x": (4, 8), "places": (4,)}, ["y"], {"w": WEIGHT, "rates": rates, "last": np.array([1])})
    graph.types["places"] = replace(graph.tensor("places"), dtype=DType.INT64)
    graph.float32_values = []
    half_precision.run(graph, HALF)
    assert [bool(graph.precision[n]) for n in ("f", "column", "angles", "sin", "p", "y")] == [True] * 4 + [False] * 2
    feeds: dict[str, Any] = {"x": np.eye(4, 8, dtype=np.float32), "places": np.arange(5001, 5005)}
    expected = WEIGHT[:4] * np.sin(np.arange(5001, 5005)[:, None] * rates)
    np.testing.assert_allclose(evaluate(graph, feeds)[0], expected, atol=5e-3)


def test_half_precision__squares_that_are_summed__stay_in_float32() -> None:
    """The square of 300 is beyond float16's range."""
    nodes = [
        named("MatMul", ["x", "w"], "p"),
        named("Mul", ["p", "scale"], "large"),
        named("Mul", ["large", "large"], "squares"),
        named("ReduceMean", ["squares", "last"], "mean"),
        named("Sqrt", ["mean"], "root"),
        named("Div", ["large", "root"], "y"),
    ]
    constants = {"w": WEIGHT, "scale": np.float32(300), "last": np.array([-1])}
    found = converted(graph_of(nodes, {"x": (4, 8)}, ["y"], constants))
    assert found["squares"] and found["mean"] and found["root"] and not found["p"]


def test_half_precision__comparison__is_of_float32() -> None:
    nodes = [named("MatMul", ["x", "w"], "p"), named("Greater", ["p", "c"], "b"), named("Where", ["b", "p", "p"], "y")]
    graph = graph_of(nodes, {"x": (4, 8)}, ["y"], {"w": WEIGHT, "c": np.float32(0.1)})
    converted(graph)
    assert {graph.tensor(n).dtype for n in graph.producer("b").inputs} == {DType.FLOAT}  # type: ignore[union-attr]


def test_half_precision__named_node__and_no_other_stays_in_float32() -> None:
    graph = product(named("MatMul", ["p", "w"], "q"), named("MatMul", ["q", "w"], "y"))
    found = converted(graph, replace(HALF, half=HalfPrecision(("q",))))
    assert found == {"p": "", "q": "the session's options name it", "y": ""}


def test_half_precision__node_that_was_fused__what_it_became_stays_in_float32() -> None:
    graph = product(named("Relu", ["p"], "r"), named("MatMul", ["r", "w"], "y"))
    target = replace(HALF, half=HalfPrecision(("p",)))
    graph.float32_values = values_after(graph, target)
    graph.substitute({graph.producer("p"): (), graph.producer("r"): [named("MatMul", ["x", "w"], "r")]})  # type: ignore[dict-item]
    half_precision.run(graph, target)
    assert graph.precision == {"r": "the session's options name it", "y": ""}


def test_half_precision__what_only_prepares_inputs__stays_in_float32() -> None:
    nodes = [named("Sub", ["x", "m"], "centered"), named("MatMul", ["centered", "w"], "y")]
    found = converted(graph_of(nodes, {"x": (4, 8)}, ["y"], {"w": WEIGHT, "m": np.full(8, 127.5, np.float32)}))
    assert found["centered"] and not found["y"]


def test_half_precision__float32_node_of_no_kernel_for_float16__stays() -> None:
    graph = product(named("CumSum", ["p", "axis"], "y"), constants={"axis": np.int64(1)})
    assert converted(graph) == {"p": "", "y": "CumSum needs float32"}


def test_half_precision__unread_casts__there_are_none() -> None:
    graph = product(named("Exp", ["p"], "e"), named("MatMul", ["e", "w"], "y"))
    converted(graph)
    assert not dead_code.run(graph, HALF)

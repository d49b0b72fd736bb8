"""Sums of float16 that are scaled: in float32, on NumPy and in plans; others stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from pyruntime import InferenceSession
from pyruntime.ir import Array, DType, Node
from pyruntime.kernels import Target
from pyruntime.passes.quantization import wide_sums
from tests.passes.support import evaluate, graph_of, node, op_types

N = 512
SCALE = {"n": np.float16(1 / N), "axes": np.array([-1]), "zero": np.float16(0), "eps": np.float16(1e-3)}


def norm() -> list[Node]:
    """The layer norm of Flax: E[x^2] - E[x]^2, means as sums and products."""
    return [
        node("ReduceSum", ["x", "axes"], ["s"]),
        node("Mul", ["s", "n"], ["mean"]),
        node("Mul", ["x", "x"], ["xx"]),
        node("ReduceSum", ["xx", "axes"], ["ss"]),
        node("Mul", ["ss", "n"], ["mean2"]),
        node("Mul", ["mean", "mean"], ["square"]),
        node("Sub", ["mean2", "square"], ["d"]),
        node("Max", ["zero", "d"], ["v"]),
        node("Add", ["v", "eps"], ["ve"]),
        node("Sqrt", ["ve"], ["root"]),
        node("Reciprocal", ["root"], ["inverse"]),
        node("Sub", ["x", "mean"], ["centred"]),
        node("Mul", ["centred", "inverse"], ["y"]),
    ]


def wide(x: Array) -> Array:
    """The norm in float64."""
    x = x.astype(np.float64)
    return np.asarray((x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-3))


def given() -> Array:
    """Numbers whose squares sum to some 120,000, and whose variance is 1 % of their square."""
    return (15 + 1.5 * np.random.default_rng(0).standard_normal((3, N))).astype(np.float16)


def test_wide_sums__variance_of_squares__is_computed_in_float32_and_rounded_once() -> None:
    graph, x = graph_of(norm(), {"x": (3, N)}, ["y"], SCALE, DType.FLOAT16), given()
    assert not np.isfinite(evaluate(graph, {"x": x})[0]).all() or not evaluate(graph, {"x": x})[0].any()
    assert wide_sums.run(graph, Target())
    graph.verify()
    assert op_types(graph).count("Cast") == 5  # x, three scalars; y
    np.testing.assert_allclose(evaluate(graph, {"x": x})[0].astype(np.float64), wide(x), atol=0.02)
    assert not wide_sums.run(graph, Target())


def of_both(nodes: list[Node], constants: dict[str, Any], x: Array) -> tuple[Array, Array]:
    """y of a model of float16, as NumPy and as onnxruntime compute it."""
    made = [helper.make_node(n.op.op_type, n.inputs, n.outputs) for n in nodes]
    tensors = [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()]
    values = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT16, s) for n, s in (("x", x.shape), ("y", None))]
    graph = helper.make_graph(made, "g", values[:1], values[1:], tensors)
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()
    (mine,) = InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    (theirs,) = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    assert mine.dtype == theirs.dtype == np.float16
    return mine.astype(np.float64), theirs.astype(np.float64)


def test_numpy__variance_of_squares__is_that_of_onnxruntime() -> None:
    mine, theirs = of_both(norm(), SCALE, given())
    np.testing.assert_allclose(mine, wide(given()), atol=0.02)
    np.testing.assert_allclose(mine, theirs, atol=0.02)


SCALED = {
    "norm": ([node("ReduceL2", ["x", "axes"], ["s"]), node("Div", ["x", "s"], ["y"])], 3000, 3000 / (3000 * N**0.5)),
    "softmax": (
        [node("Exp", ["x"], ["e"]), node("ReduceSum", ["e", "axes"], ["s"]), node("Div", ["e", "s"], ["y"])],
        10,
        1 / N,
    ),
    "sums": (
        [node("ReduceSum", ["x", "axes"], ["s"]), node("ReduceSum", ["x"], ["t"]), node("Div", ["s", "t"], ["y"])],
        300,
        1 / 3,
    ),
    "scores": ([node("MatMul", ["x", "w"], ["p"]), node("Mul", ["p", "n"], ["y"])], 15, 225),
}
"""Nodes, x everywhere, y everywhere: sums beyond 65504, which come back."""


@pytest.mark.parametrize("name", SCALED)
def test_sums_beyond_float16__that_are_scaled__are_those_of_onnxruntime(name: str) -> None:
    nodes, number, wanted = SCALED[name]
    x, constants = np.full((3, N), number, np.float16), SCALE | {"w": np.full((N, 2), 15, np.float16)}
    mine, theirs = of_both(nodes, constants, x)
    np.testing.assert_allclose(mine, wanted, rtol=2e-3)
    np.testing.assert_allclose(mine, theirs, rtol=2e-3)
    graph = graph_of(nodes, {"x": (3, N)}, ["y"], constants, DType.FLOAT16)
    assert wide_sums.run(graph, Target()) is (name != "scores")  # kernels of products accumulate in float32
    if name != "scores":
        np.testing.assert_allclose(evaluate(graph, {"x": x})[0].astype(np.float64), wanted, rtol=2e-3)


ALONE = {
    "float32": (norm(), DType.FLOAT),
    "sum as it is": ([node("ReduceSum", ["x", "axes"], ["y"])], DType.FLOAT16),
    "no arithmetic": ([node("ReduceMean", ["x", "axes"], ["m"]), node("Relu", ["m"], ["y"])], DType.FLOAT16),
}


@pytest.mark.parametrize("name", ALONE)
def test_wide_sums__no_arithmetic_on_sums_of_float16__changes_nothing(name: str) -> None:
    nodes, dtype = ALONE[name]
    constants = {n: np.asarray(a, dtype.numpy if n != "axes" else np.int64) for n, a in SCALE.items()}
    assert not wide_sums.run(graph_of(nodes, {"x": (3, N)}, ["y"], constants, dtype), Target())


def test_wide_sums__sum_that_is_also_an_output__is_rounded_there() -> None:
    nodes = [node("ReduceSum", ["x", "axes"], ["s"]), node("Mul", ["s", "n"], ["y"])]
    graph = graph_of(nodes, {"x": (1, N)}, ["s", "y"], SCALE, DType.FLOAT16)
    assert wide_sums.run(graph, Target())
    graph.verify()
    total, mean = evaluate(graph, {"x": np.full((1, N), 200, np.float16)})
    assert total.dtype == mean.dtype == np.float16
    assert np.isinf(total).all() and (mean == 200).all()

"""Sums of float16 that are scaled: in float32, on NumPy and in plans; others stay."""

from __future__ import annotations

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
    assert op_types(graph).count("Cast") == 6  # x, three scalars; the mean and the inverse
    np.testing.assert_allclose(evaluate(graph, {"x": x})[0].astype(np.float64), wide(x), atol=0.02)
    assert not wide_sums.run(graph, Target())


def test_numpy__variance_of_squares__is_that_of_onnxruntime() -> None:
    nodes = [helper.make_node(n.op.op_type, n.inputs, n.outputs) for n in norm()]
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT16, [3, N]) for name in "xy")
    constants = [numpy_helper.from_array(np.asarray(a), n) for n, a in SCALE.items()]
    graph = helper.make_graph(nodes, "g", [x], [y], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    data, feeds = model.SerializeToString(), {"x": given()}
    (theirs,) = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, feeds)
    (mine,) = InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, feeds)
    assert mine.dtype == np.float16
    np.testing.assert_allclose(mine.astype(np.float64), wide(feeds["x"]), atol=0.02)
    np.testing.assert_allclose(mine.astype(np.float64), theirs.astype(np.float64), atol=0.02)


SOFTMAX = [node("Exp", ["x"], ["e"]), node("ReduceSum", ["e", "axes"], ["s"]), node("Div", ["e", "s"], ["y"])]
ALONE = {
    "float32": (norm(), DType.FLOAT),
    "softmax": (SOFTMAX, DType.FLOAT16),
    "sum as it is": ([node("ReduceSum", ["x", "axes"], ["y"])], DType.FLOAT16),
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

"""Sums of float16 that are scaled: in float32, on NumPy and in plans; others stay."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

from pyruntime import InferenceSession
from pyruntime.ir import Array, DType, Graph, Node, TensorType, ValueInfo, known
from pyruntime.kernels import Target
from pyruntime.ops.interpreter import interpret
from pyruntime.passes.quantization import wide_sums
from tests.half_models import CONSTANTS, SCALED, N, norm, norm_feed, norm_in_float64, sums_model
from tests.passes.support import evaluate, graph_of, node, op_types


def test_wide_sums__variance_of_squares__is_computed_in_float32_and_rounded_once() -> None:
    graph, x = graph_of(norm(), {"x": (3, N)}, ["y"], CONSTANTS, DType.FLOAT16), norm_feed()
    assert not np.isfinite(evaluate(graph, {"x": x})[0]).all() or not evaluate(graph, {"x": x})[0].any()
    assert wide_sums.run(graph, Target())
    graph.verify()
    assert op_types(graph).count("Cast") == 5  # x, three scalars; y
    np.testing.assert_allclose(evaluate(graph, {"x": x})[0].astype(np.float64), norm_in_float64(x), atol=0.02)
    assert not wide_sums.run(graph, Target())


def of_both(nodes: list[Node], x: Array) -> tuple[Array, Array]:
    """y as NumPy and as onnxruntime compute it."""
    data = sums_model(nodes, x.shape).SerializeToString()
    (mine,) = InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    (theirs,) = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    assert mine.dtype == theirs.dtype == np.float16
    return mine.astype(np.float64), theirs.astype(np.float64)


def test_numpy__variance_of_squares__is_that_of_onnxruntime() -> None:
    mine, theirs = of_both(norm(), norm_feed())
    np.testing.assert_allclose(mine, norm_in_float64(norm_feed()), atol=0.02)
    np.testing.assert_allclose(mine, theirs, atol=0.02)


@pytest.mark.parametrize("name", SCALED)
def test_sums_beyond_float16__that_are_scaled__are_those_of_onnxruntime(name: str) -> None:
    nodes, number, wanted = SCALED[name]
    x = np.full((3, N), number, np.float16)
    mine, theirs = of_both(nodes, x)
    np.testing.assert_allclose(mine, wanted, rtol=2e-3)
    np.testing.assert_allclose(mine, theirs, rtol=2e-3)
    graph = graph_of(nodes, {"x": (3, N)}, ["y"], CONSTANTS, DType.FLOAT16)
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
    constants = {n: a if n in ("axes", "last") else a.astype(dtype.numpy) for n, a in CONSTANTS.items()}
    assert not wide_sums.run(graph_of(nodes, {"x": (3, N)}, ["y"], constants, dtype), Target())


def test_wide_sums__sum_that_is_also_an_output__is_rounded_there() -> None:
    nodes = [node("ReduceSum", ["x", "axes"], ["s"]), node("Mul", ["s", "n"], ["y"])]
    graph = graph_of(nodes, {"x": (1, N)}, ["s", "y"], CONSTANTS, DType.FLOAT16)
    assert wide_sums.run(graph, Target())
    graph.verify()
    total, mean = evaluate(graph, {"x": np.full((1, N), 200, np.float16)})
    assert total.dtype == mean.dtype == np.float16
    assert np.isinf(total).all() and (mean == 200).all()


def test_sums__of_float32_raised_to_a_power_of_float16__stay_float32() -> None:
    nodes = [node("ReduceSum", ["x", "axes"], ["s"]), node("Pow", ["s", "two"], ["y"])]
    constants = {"axes": np.array([-1]), "two": np.float16(2)}
    graph = graph_of(nodes, {"x": (1, N)}, ["y"], constants)
    assert not wide_sums.run(graph, Target())
    stored = {name: graph.constants[name] for name in constants}
    plain = Graph("g", [ValueInfo("x")], [ValueInfo("y")], nodes, stored)
    y = interpret(plain, {"x": known(graph.tensor("x"), np.ones((1, N), np.float32))})["y"]
    assert y == TensorType(DType.FLOAT, (1, 1)) and y.value() == N * N

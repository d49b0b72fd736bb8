"""Softmax, LogSoftmax, Hardmax, LayerNormalization, RMSNormalization, LpNormalization, CumSum, CumProd on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyruntime.errors import InvalidGraph
from pyruntime.ir import DType, TensorType
from pyruntime.kernels import Target
from pyruntime.kernels.rows.rows import Rows, rows_of
from pyruntime.kernels.rows.rows_candidates import NORMS, SOFTMAX, lanes_of
from pyruntime.ops.registry import op_class
from tests.harness import make_op, run_op
from tests.oracle import check_against_ort, node_of

RNG = np.random.default_rng(0)
AWKWARD = np.array(
    [[1, np.nan, 2], [np.inf, -np.inf, 3], [np.inf, 2, 3], [-np.inf] * 3, [-np.inf, 1, 2], [3e38, -3e38, 0]], np.float32
)


@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("opset", [7, 11, 13])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax__opset_and_axis__as_onnxruntime(name: str, opset: int, axis: int) -> None:
    if opset == 7 and axis < 0:
        axis = 2
    x = RNG.standard_normal((3, 4, 5)).astype(np.float32)
    check_against_ort(name, [x], opset=opset, axis=axis)
    if name != "Hardmax":
        check_against_ort(name, [x.astype(np.float64)], opset=opset, axis=axis)


@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax"])
def test_softmax__nan_and_infinity__as_onnxruntime(name: str) -> None:
    check_against_ort(name, [AWKWARD], opset=13)


@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("shape", [(), (0, 3), (3, 0)])
def test_softmax__scalar_or_empty__same_shape(name: str, shape: tuple[int, ...]) -> None:
    op = make_op(node_of(name, [np.zeros(1)]), {"": 13})
    x = np.zeros(shape, np.float32)
    (y,) = run_op(op, [x])
    assert y.shape == shape and (not y.size or y == (0 if name == "LogSoftmax" else 1))


def test_hardmax__ties_and_nan__first() -> None:
    x = np.array([[1, 3, 3], [2, np.nan, np.nan]], np.float32)
    op = make_op(node_of("Hardmax", [x]), {"": 13})
    assert run_op(op, [x])[0].tolist() == [[0, 1, 0], [0, 1, 0]]


@pytest.mark.parametrize("axis", [-1, 1, 0])
def test_layer_normalization__three_outputs__as_onnxruntime(axis: int) -> None:
    x = RNG.standard_normal((2, 3, 8)).astype(np.float32) + 100
    scale, bias = (RNG.standard_normal(x.shape[axis:] if axis else x.shape).astype(np.float32) for _ in range(2))
    check_against_ort("LayerNormalization", [x, scale, bias], opset=17, outputs=3, axis=axis, tolerance=(2e-3, 2e-3))
    check_against_ort("LayerNormalization", [x, scale], opset=17, axis=axis, epsilon=0.1, tolerance=(2e-3, 2e-3))


def test_layer_normalization__large_mean__variance_kept() -> None:
    x = np.array([[10000.0, 10001.0, 10002.0, 10003.0]], np.float32)
    op = make_op(node_of("LayerNormalization", [x, x], epsilon=0.0), {"": 17})
    (y, mean, inv) = run_op(op, [x, np.ones(4, np.float32)])
    np.testing.assert_allclose(y[0], np.array([-3, -1, 1, 3]) / np.sqrt(5), 1e-6)
    assert mean == 10001.5 and abs(inv - np.sqrt(0.8)) < 1e-6


def test_layer_normalization__scale_that_does_not_broadcast__invalid_graph() -> None:
    op = make_op(node_of("LayerNormalization", [AWKWARD, AWKWARD]), {"": 17})
    with pytest.raises(InvalidGraph, match="broadcast"):
        op.infer(TensorType(DType.FLOAT, (2, 4)), TensorType(DType.FLOAT, (3,)))


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("axis", [0, -1])
def test_lp_normalization__norm__as_onnxruntime(p: int, axis: int) -> None:
    x = RNG.standard_normal((3, 4, 5)).astype(np.float32)
    x[:, 0, 0] = 0
    x[0, 0] = 0
    check_against_ort("LpNormalization", [x], opset=1, axis=axis, p=p)


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
def test_cumsum__direction__as_onnxruntime(exclusive: int, reverse: int, dtype: Any) -> None:
    x = RNG.integers(-9, 9, (3, 4, 5)).astype(dtype)
    for axis in (0, 1, -1):
        check_against_ort("CumSum", [x, np.array(axis)], opset=14, exclusive=exclusive, reverse=reverse)


def test_cumsum__empty_axis__empty() -> None:
    op = op_class("CumSum", "", 14)(exclusive=1)  # type: ignore[call-arg]
    assert run_op(op, [np.zeros((2, 0), np.float32), np.array(1)])[0].shape == (2, 0)


@pytest.mark.parametrize(
    ("rows", "lanes"),
    [
        (Rows(4, 10, 1), 1),
        (Rows(4, 100, 1), 16),
        (Rows(4, 4096, 1), 256),
        (Rows(8, 20, 256), 1),
        (Rows(8, 100, 256), 8),
        (Rows(4096, 128, 1), 16),
    ],
)
def test_rows__shape__lanes(rows: Rows, lanes: int) -> None:
    for family in (SOFTMAX, NORMS):
        assert lanes_of(family, rows.problem, Target()) == lanes
        assert lanes_of(family, rows.problem, Target(vendor="google")) == 1


def test_rows_of__flatten__everything_from_axis() -> None:
    assert rows_of((2, 3, 4), 1) == Rows(2, 3, 4)
    assert rows_of((2, 3, 4), 1, flatten=True) == Rows(2, 12, 1)
    assert rows_of((), 0) == Rows(1, 1, 1)

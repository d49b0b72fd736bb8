"""The rules of docs/numerics.md on the GPU: NaN, infinities and subnormal numbers as on NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from e2e.harness.gpu import Gpu
from pyruntime.ir import Array
from tests.harness import make_op, run_op
from tests.oracle import node_of

TYPES = ["float32", "float16", "bfloat16"]
ODD = [np.nan, -2.5, np.inf, 0.0, 3.0, -np.inf, -np.nan, -0.0, 1.0]
UNARY = ["Relu", "Abs", "Neg", "Sign", "Sigmoid", "Tanh", "LeakyRelu", "Elu", "HardSigmoid", "HardSwish", "Softplus",
         "Softsign", "ThresholdedRelu", "Selu", "Erf", "Floor", "Ceil", "Round", "Exp", "Reciprocal", "Sqrt", "Log",
         "Mish", "Gelu", "IsNaN", "Shrink", "Celu"]  # fmt: skip
BINARY = ["Max", "Min", "Greater", "Less", "Equal", "GreaterOrEqual", "LessOrEqual", "Add", "PRelu"]
WINDOWS: list[dict[str, Any]] = [{"kernel_shape": [2, 3]}, {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}]


def _array(values: Any, dtype: str) -> Array:
    return np.asarray(values, np.float32).astype(getattr(ml_dtypes, dtype, None) or np.dtype(dtype))


def _rows(dtype: str, *shape: int) -> Array:
    """Numbers of which one in some rows is NaN: the first, the last, one between, and all."""
    x = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
    last = x.reshape(-1, shape[-1])
    for row, place in enumerate((0, -1, shape[-1] // 2, shape[-1] - 2)):
        last[row % len(last), place] = np.nan
    last[4 % len(last)] = np.nan
    return _array(x, dtype)


def _same(gpu: Gpu, op_type: str, inputs: list[Array | None], outputs: int = 1, **attributes: Any) -> None:
    """The GPU's outputs are the host's, NaN where these are."""
    op = make_op(node_of(op_type, inputs, outputs, **attributes), {"": 20})
    for host, device in zip(run_op(op, list(inputs)), run_op(op, list(inputs), gpu), strict=False):
        a, b = (np.asarray(y).astype(np.float64) for y in (device, host))
        np.testing.assert_allclose(a, b, 2e-2, 1e-3, err_msg=f"{op_type} {attributes}")


def _reduced(dtype: str) -> Iterator[tuple[Array, int]]:
    for shape in ((5, 7), (6, 64), (2, 3, 300), (1, 5000)):
        x = _rows(dtype, *shape)
        yield from ((x, axis) for axis in (0, -1))


@pytest.mark.parametrize("dtype", TYPES)
def test_elementwise__nan_and_infinity__as_host(gpu: Gpu, dtype: str) -> None:
    x = _array(ODD * 3, dtype)
    for name in UNARY:
        _same(gpu, name, [x])
    for name in BINARY:
        for other in (np.nan, 1.0, 0.0):
            _same(gpu, name, [x, np.full_like(x, other)])
            if name != "PRelu":
                _same(gpu, name, [np.full_like(x, other), x])


@pytest.mark.parametrize("dtype", TYPES)
def test_clip__nan_as_element_and_bound__as_onnxruntime(gpu: Gpu, dtype: str) -> None:
    x = _array(ODD * 3, dtype)
    for low, high in ((-2.0, 2.0), (np.nan, 2.0), (-2.0, np.nan), (np.nan, np.nan), (2.0, -2.0)):
        _same(gpu, "Clip", [x, _array(low, dtype), _array(high, dtype)])
    _same(gpu, "Clip", [x, None, _array(2, dtype)])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("fold", ["Max", "Min", "Sum", "Mean", "LogSumExp"])
def test_reduce__nan_anywhere__as_host(gpu: Gpu, fold: str, dtype: str) -> None:
    for x, axis in _reduced(dtype):
        _same(gpu, f"Reduce{fold}", [x, np.array([axis])])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("name", ["ArgMax", "ArgMin"])
def test_arg_reduce__nan_anywhere__as_host(gpu: Gpu, name: str, last: int, dtype: str) -> None:
    for x, axis in _reduced(dtype):
        _same(gpu, name, [x], axis=axis, select_last_index=last)


@pytest.mark.parametrize("dtype", TYPES)
def test_pools__nan_in_a_window__as_host(gpu: Gpu, dtype: str) -> None:
    x = _rows(dtype, 1, 2, 8, 9)
    for window in WINDOWS:
        _same(gpu, "MaxPool", [x], **window)
        _same(gpu, "MaxPool", [x], 2, **window)
        _same(gpu, "AveragePool", [x], **window)
    _same(gpu, "GlobalMaxPool", [x])
    boxes, image = _array([[0, 0, 6, 6], [1, 2, 7, 7]], dtype), np.zeros(2, np.int64)
    _same(gpu, "RoiAlign", [x, boxes, image], mode="max", output_height=2, output_width=3, sampling_ratio=2)
    rois = _array([[0, 0, 0, 6, 6], [0, 1, 2, 7, 7]], dtype)
    _same(gpu, "MaxRoiPool", [x, rois], pooled_shape=[2, 2])


@pytest.mark.parametrize("dtype", TYPES)
def test_rows__nan_anywhere__as_host(gpu: Gpu, dtype: str) -> None:
    for shape in ((5, 7), (6, 300)):
        x = _rows(dtype, *shape)
        for name in ("Softmax", "LogSoftmax", "Hardmax"):
            _same(gpu, name, [x])
        for largest in (0, 1):
            _same(gpu, "TopK", [x, np.array([3])], 2, largest=largest)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_rounding_and_roots__subnormal_numbers__exact(gpu: Gpu, dtype: str) -> None:
    x = _array([1e-40, -1e-40, 1e-39, -1e-39, 5e-39, 1.2e-38, 2e-38, -2e-38, 0.0, -0.0, 2.25, -2.25] * 2, dtype)
    for name in ("Floor", "Ceil", "Sqrt"):
        op = make_op(node_of(name, [x]), {"": 20})
        with np.errstate(invalid="ignore"):
            ((host,), (device,)) = run_op(op, [x]), run_op(op, [x], gpu)
        np.testing.assert_allclose(device, host, 1e-2 if dtype == "bfloat16" else 1e-6, 0)

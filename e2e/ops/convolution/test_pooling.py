"""The pooling operators on the GPU."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from e2e.harness.gpu import Gpu
from pyruntime.ir import Array
from tests.harness import run_op
from tests.ops.convolution.test_pooling import GLOBAL, LARGER, pool_cases, pool_op
from tests.oracle import check_against_ort

TOLERANCE = {"float32": (1e-4, 1e-4), "float16": (2e-3, 2e-3), "bfloat16": (2e-2, 2e-2)}


def _as_host(gpu: Gpu, name: str, inputs: list[Array | None], outputs: int = 1, **attributes: Any) -> list[Array]:
    """The GPU's results, after comparing them with the host's."""
    op = pool_op(name, len(inputs), outputs, **attributes)
    host, device = run_op(op, list(inputs)), run_op(op, list(inputs), gpu)
    assert inputs[0] is not None
    for mine, theirs in zip(device, host, strict=True):
        assert mine.shape == theirs.shape and mine.dtype == theirs.dtype
        if theirs.dtype.kind == "f":
            np.testing.assert_allclose(mine, theirs, *TOLERANCE[inputs[0].dtype.name])
        else:
            np.testing.assert_array_equal(mine, theirs)
    return device


def test_pool__random__as_onnxruntime(gpu: Gpu) -> None:
    for name, x, outputs, attributes in pool_cases(40, 1):
        opset = 18 if name == "LpPool" else 19
        check_against_ort(name, [x], gpu, opset=opset, outputs=outputs, tolerance=(1e-3, 1e-4), **attributes)


@pytest.mark.parametrize("attributes", LARGER)
def test_pool__window_larger_than_the_input__as_host(gpu: Gpu, attributes: dict[str, Any]) -> None:
    x = np.random.default_rng(4).standard_normal((2, 3, 5, 4)).astype(np.float32)
    _as_host(gpu, "LpPool", [x], ceil_mode=1, **attributes)
    _as_host(gpu, "MaxPool", [x], 2, ceil_mode=1, **attributes)
    _as_host(gpu, "AveragePool", [x], ceil_mode=1, **attributes)
    _as_host(gpu, "AveragePool", [x], ceil_mode=1, count_include_pad=1, **attributes)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_pool__halves__as_host(gpu: Gpu, dtype: str) -> None:
    numpy = getattr(ml_dtypes, dtype, None) or np.dtype(dtype)
    x = np.random.default_rng(2).standard_normal((2, 3, 7, 5)).astype(numpy)
    for name in ("AveragePool", "LpPool", "MaxPool"):
        _as_host(gpu, name, [x], kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 1])
    for name in GLOBAL:
        _as_host(gpu, name, [x])


def test_max_pool__not_finite__as_host(gpu: Gpu) -> None:
    x = np.array([[[1, np.nan, 2, np.nan, -np.inf, -np.inf, -np.inf, np.inf]]], np.float32)
    _as_host(gpu, "MaxPool", [x], 2, kernel_shape=[2], pads=[1, 1])
    _as_host(gpu, "MaxPool", [x], 2, kernel_shape=[2], pads=[2, 2])
    _as_host(gpu, "GlobalMaxPool", [x])
    _as_host(gpu, "AveragePool", [x[:, :, 4:]], kernel_shape=[2], pads=[2, 2])


@pytest.mark.parametrize("shape", [(1, 1, 40000), (3, 5, 129), (0, 2, 3), (1, 2000, 3, 3)])
def test_global_pool__sizes__as_host(gpu: Gpu, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    for name in GLOBAL:
        _as_host(gpu, name, [x])
    _as_host(gpu, "GlobalLpPool", [x], p=3)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("output_shape", [None, [2, 3, 9, 7]])
def test_max_unpool__every_type__as_host(gpu: Gpu, dtype: str, output_shape: list[int] | None) -> None:
    numpy = getattr(ml_dtypes, dtype, None) or np.dtype(dtype)
    x = np.random.default_rng(4).standard_normal((2, 3, 8, 6)).astype(np.float32)
    y, indices = run_op(pool_op("MaxPool", outputs=2, kernel_shape=[2, 2], strides=[2, 2]), [x])
    inputs: list[Array | None] = [y.astype(numpy), indices]
    if output_shape:
        inputs.append(np.array(output_shape))
    _as_host(gpu, "MaxUnpool", inputs, kernel_shape=[2, 2], strides=[2, 2])


def test_max_unpool__one_and_three_axes__as_host(gpu: Gpu) -> None:
    for shape in ((2, 3, 8), (1, 2, 4, 6, 4)):
        rank = len(shape) - 2
        x = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
        y, indices = run_op(pool_op("MaxPool", outputs=2, kernel_shape=[2] * rank, strides=[2] * rank), [x])
        _as_host(gpu, "MaxUnpool", [y, indices], kernel_shape=[2] * rank, strides=[2] * rank)


def test_max_unpool__equal_indices__last_element_as_host(gpu: Gpu) -> None:
    rng = np.random.default_rng(6)
    x, indices = rng.standard_normal((2, 3, 40)).astype(np.float32), rng.integers(0, 60, (2, 3, 40))
    _as_host(gpu, "MaxUnpool", [x, indices], kernel_shape=[2], strides=[2])

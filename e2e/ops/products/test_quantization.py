"""QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear on the GPU: bit for bit what the host gives."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from e2e.harness.gpu import Gpu
from pyruntime.ir import DType
from tests.harness import make_op, run_op
from tests.ops.quantization import quantization_cases as cases
from tests.oracle import node_of

X = np.linspace(-40, 40, 60, dtype=np.float32).reshape(3, 4, 5)
NARROW = [ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2, ml_dtypes.uint2]
FLOAT8 = [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz]


@pytest.fixture(params=["gpu", "software"])
def device(request: pytest.FixtureRequest) -> Gpu:
    """A GPU, and a processor."""
    found: Gpu = request.getfixturevalue(request.param)
    return found


def _check(gpu: Gpu, name: str, inputs: list[Any], outputs: int = 1, **attributes: int) -> None:
    host = cases.run(name, list(inputs), None, 28, outputs, **attributes)
    device = cases.run(name, list(inputs), gpu, 28, outputs, **attributes)
    for a, b in zip(host if outputs > 1 else [host], device if outputs > 1 else [device], strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("zero", [*cases.ZEROS, *(np.array(1, t) for t in NARROW)], ids=lambda z: z.dtype.name)
def test_quantize__integers__as_host(device: Gpu, zero: Any) -> None:
    special = np.array([1e9, -1e9, np.inf, -np.inf, np.nan, 0.25, 0.75, -0.25], np.float32)
    for scale in (0.5, 0.1, 0.0078125, 3.7):
        _check(device, "QuantizeLinear", [np.concatenate([cases.ties(scale), special]), np.float32(scale), zero])


@pytest.mark.parametrize("kind", [*FLOAT8, ml_dtypes.float4_e2m1fn], ids=lambda t: t.__name__)
@pytest.mark.parametrize("saturate", [0, 1])
def test_quantize__floats__as_host(gpu: Gpu, kind: Any, saturate: int) -> None:
    x = np.concatenate([X.reshape(-1) * 30, np.array([1e6, -1e6, np.inf, 0.3, 0.001], np.float32)])
    _check(gpu, "QuantizeLinear", [x, np.float32(0.7), np.array(0, kind)], saturate=saturate)


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_quantize_and_dequantize__half_precision__as_host(gpu: Gpu, kind: Any) -> None:
    x, scale = (X * 1.7).astype(kind), np.array(0.3, kind)
    _check(gpu, "QuantizeLinear", [x, scale, np.int8(3)])
    _check(gpu, "QuantizeLinear", [x, scale, np.int8(3)], precision=DType.FLOAT.code)
    _check(gpu, "DequantizeLinear", [np.arange(-128, 128).astype(np.int8), scale, np.int8(3)])
    _check(
        gpu,
        "DequantizeLinear",
        [np.arange(-128, 128).astype(np.int8), np.float32(0.3)],
        output_dtype=DType.from_numpy(np.dtype(kind)).code,
    )


def test_quantize__int32__as_host(device: Gpu) -> None:
    x = np.array([2**31 - 1, -(2**31), 5, -7, 16777217, 300], np.int32)
    _check(device, "QuantizeLinear", [x, np.float32(3), np.int16(1)])
    _check(device, "DequantizeLinear", [x, np.float32(0.1)])


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_quantize_and_dequantize__per_axis__as_host(gpu: Gpu, axis: int) -> None:
    size = X.shape[axis]
    scale, zero = np.linspace(0.3, 1.1, size, dtype=np.float32), np.arange(size, dtype=np.int8)
    _check(gpu, "QuantizeLinear", [X, scale, zero], axis=axis)
    _check(gpu, "DequantizeLinear", [np.arange(60).reshape(X.shape).astype(np.int8), scale, zero], axis=axis)
    four = np.arange(size).astype(ml_dtypes.uint4)
    _check(
        gpu, "DequantizeLinear", [(np.arange(60) % 16).reshape(X.shape).astype(ml_dtypes.uint4), scale, four], axis=axis
    )


@pytest.mark.parametrize(("axis", "block"), [(1, 2), (2, 2), (2, 3), (0, 3), (1, 3), (-1, 5), (1, 1)])
def test_quantize_and_dequantize__blocks__as_host(gpu: Gpu, axis: int, block: int) -> None:
    scale, zero = cases.block_scales(X.shape, axis, block)
    _check(gpu, "QuantizeLinear", [X, scale, zero], axis=axis, block_size=block)
    x = np.arange(60, dtype=np.int8).reshape(X.shape)
    _check(gpu, "DequantizeLinear", [x, scale, zero], axis=axis, block_size=block)
    four = (np.arange(60) % 16 - 8).reshape(X.shape).astype(ml_dtypes.int4)
    _check(gpu, "DequantizeLinear", [four, scale], axis=axis, block_size=block)


@pytest.mark.parametrize("kind", [*NARROW, *FLOAT8, ml_dtypes.float4_e2m1fn], ids=lambda t: t.__name__)
def test_dequantize__every_pattern__as_host(gpu: Gpu, kind: Any) -> None:
    x = (
        np.arange(-8, 16).astype(np.float32).astype(kind)
        if kind in NARROW
        else np.arange(256, dtype=np.uint8).view(kind)
    )
    if kind is ml_dtypes.float4_e2m1fn:
        x = (np.arange(13) / 2 - 3).astype(kind)
    _check(gpu, "DequantizeLinear", [x, np.float32(0.3)])


def test_quantize__random_quotients__division_rounds_to_nearest(device: Gpu) -> None:
    rng = np.random.default_rng(9)
    x = (rng.standard_normal(20000) * 3000).astype(np.float32)
    for scale in rng.uniform(0.01, 3, 4).astype(np.float32):
        _check(device, "QuantizeLinear", [x, scale, np.uint16(32768)])


def test_quotients__of_swiftshader__are_rounded_to_nearest(software: Gpu) -> None:
    """What `kernels.legalize` relies on; other devices may be 2.5 units in the last place off."""
    rng = np.random.default_rng(10)
    bits = rng.integers(0, 1 << 32, (2, 200_000), np.uint32)
    bits = (bits & 0x807FFFFF) | (
        rng.integers(96, 159, bits.shape).astype(np.uint32) << 23
    )  # quotients are normal, too
    x, y = bits.view(np.float32)
    op = make_op(node_of("Div", [x, y]), {"": 22})
    (mine,) = run_op(op, [x, y], software)
    np.testing.assert_array_equal(mine, (x.astype(np.float64) / y).astype(np.float32))


@pytest.mark.parametrize("x", [*cases.DYNAMIC, np.zeros((2, 0), np.float32)], ids=lambda x: str(x.shape))
def test_dynamic_quantize__as_host(device: Gpu, x: Any) -> None:
    _check(device, "DynamicQuantizeLinear", [x], 3)

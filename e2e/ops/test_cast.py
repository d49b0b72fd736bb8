"""Cast on the GPU: bit for bit what the host gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from e2e.harness.gpu import Gpu
from pyruntime.ir import Array, DType
from pyruntime.ir.encoding import encode
from tests.harness import carrier, make_op, run_op
from tests.ops.elementwise.cast_cases import REAL, samples
from tests.oracle import node_of

ON_GPU = [d for d in REAL if d.compute]
FLOAT8 = [d for d in ON_GPU if d.name.startswith("FLOAT8E")]
PAIRS = sorted(
    {(s, t) for s in ON_GPU for t in (DType.FLOAT, DType.UINT64, DType.DOUBLE, DType.INT16, DType.UINT4)}
    | {(s, t) for t in ON_GPU for s in (DType.FLOAT, DType.DOUBLE, DType.INT64, DType.UINT32, DType.INT8, DType.BOOL)},
    key=lambda pair: (pair[0].code, pair[1].code),
)


def _check(gpu: Gpu, x: Array, to: DType, **attributes: Any) -> None:
    op = make_op(node_of("Cast", [x], to=to.code, **attributes), {"": 28})
    (host,), (device,) = run_op(op, [x]), run_op(op, [x], gpu)
    value = carrier(x)[1]
    differ = ~((host == device) | ((host != host) & (device != device)))
    assert not differ.any(), [
        (v, f"host {h}", f"GPU {d}") for v, h, d in zip(value[differ], host[differ], device[differ], strict=True)
    ][:8]
    if to.is_float:
        real = host == host
        np.testing.assert_array_equal(np.signbit(host[real]), np.signbit(device[real]))


@pytest.mark.parametrize(("source", "to"), PAIRS, ids=lambda d: d.onnx_name)
def test_cast__pair_of_types__as_host(gpu: Gpu, source: DType, to: DType) -> None:
    x = samples(source)
    if DType.FLOAT8E8M0 in (source, to) and source is not to:
        # 2^-127, its least value, is subnormal in float32: devices may flush it.
        x = x[np.abs(x.astype(np.float64)) > 2.0**-126] if source.is_float else x[x > 0]
    _check(gpu, x, to)


@pytest.mark.parametrize("to", FLOAT8, ids=lambda d: d.onnx_name)
@pytest.mark.parametrize("source", [DType.FLOAT, DType.FLOAT16, DType.DOUBLE], ids=lambda d: d.onnx_name)
def test_cast__to_float8_without_saturation__as_host(gpu: Gpu, source: DType, to: DType) -> None:
    x = samples(source)
    _check(gpu, np.abs(x[x != 0]) if to is DType.FLOAT8E8M0 else x, to, saturate=0)


@pytest.mark.parametrize("mode", ["down", "nearest"])
def test_cast__to_float8e8m0__other_rounding_as_host(gpu: Gpu, mode: str) -> None:
    x = np.abs(samples(DType.FLOAT))
    _check(gpu, x[x > 1e-37], DType.FLOAT8E8M0, round_mode=mode)


def test_cast__random_floats__round_as_host(gpu: Gpu) -> None:
    bits = np.random.default_rng(2).integers(0, 1 << 32, 20000, np.uint32)
    x = bits.view(np.float32)
    x = x[(np.abs(x) > 1.2e-38) | (x == 0)]
    for to in (DType.FLOAT16, DType.BFLOAT16, DType.FLOAT8E4M3FN, DType.FLOAT8E5M2FNUZ, DType.INT64, DType.DOUBLE):
        _check(gpu, x, to)
    for to in (DType.FLOAT, DType.FLOAT16):
        _check(
            gpu,
            np.random.default_rng(3).standard_normal(20000) * 10.0 ** np.random.default_rng(4).uniform(-7, 7, 20000),
            to,
        )


def test_cast__every_float16__to_float32_and_back(gpu: Gpu) -> None:
    x = np.arange(65536, dtype=np.uint16).view(np.float16)
    _check(gpu, x, DType.FLOAT)
    _check(gpu, x.astype(np.float32), DType.FLOAT16)
    _check(gpu, x, DType.BFLOAT16)


@pytest.mark.parametrize("size", [1, 3, 8, 9, 17, 1001])
def test_cast__odd_sizes_of_packed_types__no_lane_lost(gpu: Gpu, size: int) -> None:
    x = (np.arange(size) % 7 - 3).astype(np.float32)
    for to in (DType.INT4, DType.INT2, DType.FLOAT4E2M1, DType.INT8, DType.FLOAT16):
        _check(gpu, x, to)


def test_encode__of_the_device__is_raw_data(gpu: Gpu) -> None:
    x = samples(DType.FLOAT)
    op = make_op(node_of("Cast", [x], to=DType.FLOAT8E5M2.code, saturate=0), {"": 28})
    (device,) = run_op(op, [x], gpu)
    real = ~np.isnan(device)
    expected = encode(run_op(op, [x])[0], DType.FLOAT8E5M2)
    np.testing.assert_array_equal(encode(device, DType.FLOAT8E5M2)[real], expected[real])

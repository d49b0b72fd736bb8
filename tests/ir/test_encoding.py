"""raw_data of the types NumPy lacks, against ml_dtypes and ONNX's own packing."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest

from pyruntime.ir import DType
from pyruntime.ir.encoding import decode, encode, round_to

FLOATS = {
    DType.BFLOAT16: "bfloat16",
    DType.FLOAT8E4M3FN: "float8_e4m3fn",
    DType.FLOAT8E4M3FNUZ: "float8_e4m3fnuz",
    DType.FLOAT8E5M2: "float8_e5m2",
    DType.FLOAT8E5M2FNUZ: "float8_e5m2fnuz",
    DType.FLOAT6E2M3: "float6_e2m3fn",
    DType.FLOAT6E3M2: "float6_e3m2fn",
    DType.FLOAT4E2M1: "float4_e2m1fn",
}
SPECIALS = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 464, 465, -464, 61440, 61439, 248, 249, 1e30, 5.0, 7.25, 1e-9]


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.onnx_name)
def test_round_to__many_magnitudes__equals_ml_dtypes(dtype: DType) -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([SPECIALS, *(rng.standard_normal(2000) * 10.0**k for k in range(-4, 6)), np.arange(-99, 99) / 8])
    x = x.astype(np.float32)
    with np.errstate(over="ignore"):
        expected = x.astype(getattr(ml_dtypes, FLOATS[dtype])).astype(np.float32)
    got = round_to(x, dtype)
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(np.signbit(got[~np.isnan(got)]), np.signbit(expected[~np.isnan(got)]))


@pytest.mark.parametrize(
    ("dtype", "largest"), [(DType.FLOAT8E4M3FN, 448), (DType.FLOAT8E5M2, 57344), (DType.FLOAT8E4M3FNUZ, 240)]
)
def test_round_to__saturating__gives_the_largest_finite_value(dtype: DType, largest: float) -> None:
    x = np.array([np.inf, -np.inf, 1e30, -1e30, np.nan], np.float32)
    np.testing.assert_array_equal(round_to(x, dtype, True), [largest, -largest, largest, -largest, np.nan])


def test_encode__infinity_of_e5m2__keeps_its_bits() -> None:
    raw = np.array([0x7C, 0xFC], np.uint8)
    np.testing.assert_array_equal(encode(decode(raw, DType.FLOAT8E5M2, (2,)), DType.FLOAT8E5M2), raw)


@pytest.mark.parametrize("name", ["INT4", "UINT4", "INT2", "UINT2", "FLOAT4E2M1", "FLOAT6E2M3", "FLOAT6E3M2"])
@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 7, 9])
def test_encode__packed_types__are_onnx_raw_data(name: str, size: int) -> None:
    dtype = DType[name]
    x = np.resize(np.array([1, 0, 2, 3, 1] if "U" in name else [1, -1, 0, -2, 1]), size).astype(dtype.numpy)
    code = onnx.helper.tensor_dtype_to_np_dtype(dtype.code)
    tensor = onnx.numpy_helper.from_array(round_to(x, dtype).astype(code))
    raw = encode(x, dtype)
    assert raw.nbytes == dtype.nbytes(size)
    assert raw.tobytes() == tensor.raw_data
    np.testing.assert_array_equal(decode(raw, dtype, (size,)), round_to(x, dtype))

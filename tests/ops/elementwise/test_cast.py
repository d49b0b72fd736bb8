"""Cast, CastLike and BitCast on the host."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import onnx
import pytest

from pyruntime.errors import InvalidGraph, RuntimeException
from pyruntime.ir import Array, DType, TensorType
from pyruntime.ops.elementwise.cast import Cast
from tests.harness import make_op, run_op
from tests.ops.elementwise.cast_cases import REAL, numpy_dtype, samples
from tests.oracle import check_against_ort, node_of, ort_run

INTEGERS = [d for d in REAL if d.is_integer]
WIDE = [DType.FLOAT, DType.FLOAT16, DType.BFLOAT16, DType.DOUBLE]
SATURATING = [d for d in DType if d.name.startswith("FLOAT8E") and d is not DType.FLOAT8E8M0]


def cast(x: Array, to: DType, **attributes: Any) -> Array:
    """`x` through Cast, in the carrier of `to`."""
    op = make_op(node_of("Cast", [x], to=to.code, **attributes), {"": 28})
    (y,) = run_op(op, [x])
    return y


def in_range(x: Array, to: DType) -> Array:
    """Which floats an integer type holds once truncated."""
    low, high = (-(1 << (to.bits - 1)), 1 << (to.bits - 1)) if to.is_signed else (0, 1 << to.bits)
    with np.errstate(invalid="ignore"):
        whole = np.trunc(x.astype(np.float64))
        return (whole >= low) & (whole < high)


@pytest.mark.parametrize("source", REAL, ids=lambda d: d.onnx_name)
def test_cast__to_every_type__as_numpy_and_ml_dtypes(source: DType) -> None:
    for to in REAL:
        if to is DType.FLOAT8E8M0:
            continue
        x = samples(source)
        if source.is_float and to.is_integer:
            x = x[in_range(x, to)]
        got = cast(x, to, saturate=0)
        np.testing.assert_array_equal(got, expected_cast(x, source, to).astype(to.numpy), f"to {to.onnx_name}")


def expected_cast(x: Array, source: DType, to: DType) -> Array:
    """What NumPy and ml_dtypes make of `x`, without saturation."""
    with np.errstate(all="ignore"):
        if to is DType.BOOL:
            return np.asarray(x.astype(np.float64) != 0 if source.is_float else x.astype(np.int64) != 0)
        if source.is_integer and to.bits < 8 and to.is_integer:
            low = x.astype(np.int64) & ((1 << to.bits) - 1)
            return np.where(low >> (to.bits - 1), low - (1 << to.bits), low) if to.is_signed else low
        if source is DType.BOOL or (to in SATURATING or (to.bits < 8 and to.is_float)):
            return x.astype(np.float32).astype(numpy_dtype(to))
        if source.is_float and to.is_integer:
            return np.trunc(x.astype(np.float64)).astype(np.int64 if to.is_signed else np.uint64)
        return x.astype(numpy_dtype(to))


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="onnxruntime does as the processor does")
@pytest.mark.parametrize("to", [d for d in INTEGERS if d.bits >= 8], ids=lambda d: d.onnx_name)
def test_cast__float_out_of_range__as_onnxruntime(to: DType) -> None:
    # onnxruntime's vectorised loop is the contract; its tail, and uint32 of NaN, differ from it.
    x = samples(DType.FLOAT)
    x = np.resize(x[~np.isnan(x)] if to is DType.UINT32 else x, 512)
    check_against_ort("Cast", [x], opset=13, to=to.code)


def test_cast__float_no_integer_holds__least_value_and_low_bits() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 3e9, -3e9, 1e20, 300.0, -1.0], np.float32)
    least = -(2**31)
    expected: dict[DType, list[int]] = {
        DType.INT32: [least, least, least, least, least, least, 300, -1],
        DType.INT8: [0, 0, 0, 0, 0, 0, 44, -1],
        DType.UINT8: [0, 0, 0, 0, 0, 0, 44, 255],
        DType.INT64: [-(2**63), -(2**63), -(2**63), 3000000000, -3000000000, -(2**63), 300, -1],
        DType.UINT32: [2**31, 0, 2**31, 3000000000, 2**31, 0, 300, 2**32 - 1],
        DType.UINT64: [2**63, 0, 2**63, 3000000000, 2**64 - 3000000000, 0, 300, 2**64 - 1],
    }
    for to, values in expected.items():
        assert cast(x, to).tolist() == values, to
        assert cast(x.astype(np.float64), to).tolist() == values, to


@pytest.mark.parametrize("to", SATURATING, ids=lambda d: d.onnx_name)
@pytest.mark.parametrize(
    "source", [DType.FLOAT, DType.FLOAT16, DType.BFLOAT16, DType.DOUBLE], ids=lambda d: d.onnx_name
)
def test_cast__to_float8_saturating__largest_value_for_what_overflows(source: DType, to: DType) -> None:
    x = samples(source)
    free, bound = cast(x, to, saturate=0), cast(x, to)
    largest = {"E4M3FN": 448, "E4M3FNUZ": 240}.get(to.name[6:], 57344)
    over = ~np.isfinite(free) & ~np.isnan(x.astype(np.float64))
    np.testing.assert_array_equal(bound[over], np.copysign(largest, x[over].astype(np.float64)))
    np.testing.assert_array_equal(bound[~over], free[~over])
    assert over.any() and (~over).any()


@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
@pytest.mark.parametrize("saturate", [0, 1])
def test_cast__to_float8e8m0__as_onnx_reference(mode: str, saturate: int) -> None:
    x = np.abs(np.concatenate([samples(DType.FLOAT), np.array([1.5, 3.0, 6.1, 1e-39, 2.0**-127, 3.3e38], np.float32)]))
    expected = onnx.numpy_helper.to_float8e8m0(x, bool(saturate), mode).astype(np.float32)
    np.testing.assert_array_equal(cast(x, DType.FLOAT8E8M0, saturate=saturate, round_mode=mode), expected)


def test_cast__double_to_half__rounds_once() -> None:
    x = np.array([1 + 2.0**-11 + 2.0**-40, 65519.99999999, 1 + 2.0**-11])
    np.testing.assert_array_equal(cast(x, DType.FLOAT16), [1 + 2.0**-10, 65504, 1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint8, np.bool_])
def test_cast__to_string__as_onnxruntime(dtype: Any) -> None:
    values = [3.14, 1e20, 1e-7, 0.1, 123456789.125, 1 / 3, 1e5, 123456.7, -0.0, np.nan, np.inf, -np.inf]
    x = np.array(values if np.dtype(dtype).kind == "f" else [3, 0, 1]).astype(dtype)
    check_against_ort("Cast", [x], opset=13, to=DType.STRING.code)


@pytest.mark.parametrize(
    ("to", "texts"),
    [
        (DType.FLOAT, ["3.14", "1e-5", "INF", "-inf", "NaN", "+INF", " 7 ", "1E8"]),
        (DType.DOUBLE, ["0.1", "-1e300"]),
        (DType.INT64, ["9223372036854775807", "-9223372036854775808", "100"]),
        (DType.UINT64, ["18446744073709551615"]),
        (DType.INT32, ["-7", "2147483647"]),
        (DType.BOOL, ["1", "0"]),
    ],
    ids=lambda v: v.onnx_name if isinstance(v, DType) else None,
)
def test_cast__from_string__as_onnxruntime(to: DType, texts: list[str]) -> None:
    x = np.array(texts, object)
    (expected,) = ort_run("Cast", [x], 13, to=to.code)
    np.testing.assert_array_equal(cast(x, to), expected)


def test_cast__string_that_is_no_number__runtime_exception() -> None:
    with pytest.raises(RuntimeException, match="Hello"):
        cast(np.array(["Hello"], object), DType.FLOAT)


def test_cast__from_float16_of_half_precision_models__exact() -> None:
    x = np.arange(65536, dtype=np.uint16).view(np.float16)
    np.testing.assert_array_equal(cast(x, DType.FLOAT), x.astype(np.float32))
    np.testing.assert_array_equal(cast(x.astype(np.float32), DType.FLOAT16), x)


@pytest.mark.parametrize("to", [DType.INT32, DType.FLOAT16, DType.BOOL, DType.STRING], ids=lambda d: d.onnx_name)
def test_cast_like__as_cast(to: DType) -> None:
    x = np.array([1.5, -2.0, 0.0], np.float32)
    like = np.array(["a"], object) if to is DType.STRING else np.zeros(2, to.numpy)
    (got,) = run_op(make_op(node_of("CastLike", [x, like]), {"": 19}), [x, like])
    np.testing.assert_array_equal(got, cast(x, to))


@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (3, 1)])
def test_cast__scalars_and_empty__keep_their_shape(shape: tuple[int, ...]) -> None:
    for to in (DType.FLOAT16, DType.INT4, DType.FLOAT8E4M3FN, DType.STRING, DType.BOOL, DType.UINT64):
        assert cast(np.ones(shape, np.float32), to).shape == shape


def test_cast__complex_or_unknown_type__invalid_graph() -> None:
    with pytest.raises(InvalidGraph, match="real type"):
        Cast(to=DType.COMPLEX64.code).infer(TensorType(DType.FLOAT, (1,)))
    with pytest.raises(InvalidGraph, match="round_mode"):
        Cast(to=1, round_mode="away").infer(TensorType(DType.FLOAT, (1,)))


@pytest.mark.parametrize(
    ("source", "to"),
    [("FLOAT", "UINT32"), ("DOUBLE", "INT64"), ("COMPLEX64", "DOUBLE"), ("INT4", "UINT4"), ("FLOAT8E5M2", "INT8")],
)
def test_bit_cast__two_types_of_a_width__same_bits(source: str, to: str) -> None:
    a, b = DType[source], DType[to]
    x = np.array([1 - 2j, 3.5j], np.complex64) if source == "COMPLEX64" else samples(a)
    # The carriers of narrow floats know one NaN.
    x = x[x == x]
    (y,) = run_op(make_op(node_of("BitCast", [x], to=b.code), {"": 26}), [x])
    narrow = y.astype(numpy_dtype(b))
    (back,) = run_op(make_op(node_of("BitCast", [narrow], to=a.code), {"": 26}), [narrow])
    np.testing.assert_array_equal(back, x.astype(a.numpy))
    if a.bits >= 8:
        np.testing.assert_array_equal(y.view(np.uint8).reshape(-1), x.view(np.uint8).reshape(-1))

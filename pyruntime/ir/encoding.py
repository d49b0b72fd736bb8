"""Conversion between raw_data bytes and NumPy carriers, for every ONNX element type.

`decode(encode(x)) == round(x)`, rounding to nearest, ties to even, as the types are defined.

Types that NumPy lacks use a carrier: float32 for bfloat16 and for floats of 8, 6 and 4 bits, int8 or uint8 for integers
of 4 and 2 bits. Source: onnx.proto3 (TensorProto.raw_data); ONNX "Float stored in 8 bits", "Float stored in 4 bits", "4
bit integer types"; IEEE 754-2019; OCP 8-bit Floating Point Specification; OCP Microscaling Formats.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from pyruntime.ir.dtype import DType

if TYPE_CHECKING:
    from pyruntime.ir.types import Array

__all__ = ["decode", "encode", "round_to"]


@dataclass(frozen=True, slots=True)
class _Minifloat:
    """Layout of a small float: `exponent` bits with `bias`, and `mantissa` bits.

    `infinity` and `nan` are bit patterns without sign (`None`: the type has none). `nan_only_negative_zero` marks the
    FNUZ types, whose only NaN is the pattern of negative zero.
    """

    exponent: int
    mantissa: int
    bias: int
    infinity: int | None = None
    nan: int | None = None
    nan_only_negative_zero: bool = False
    signed: bool = True

    @property
    def bits(self) -> int:
        return self.exponent + self.mantissa + self.signed


_MINIFLOATS = {
    DType.FLOAT8E4M3FN: _Minifloat(4, 3, 7, nan=0x7F),
    DType.FLOAT8E4M3FNUZ: _Minifloat(4, 3, 8, nan_only_negative_zero=True),
    DType.FLOAT8E5M2: _Minifloat(5, 2, 15, infinity=0x7C, nan=0x7F),
    DType.FLOAT8E5M2FNUZ: _Minifloat(5, 2, 16, nan_only_negative_zero=True),
    DType.FLOAT4E2M1: _Minifloat(2, 1, 1),
    DType.FLOAT6E2M3: _Minifloat(2, 3, 1),
    DType.FLOAT6E3M2: _Minifloat(3, 2, 3),
    DType.FLOAT8E8M0: _Minifloat(8, 0, 127, nan=0xFF, signed=False),
}


@cache
def _table(dtype: DType) -> Array:
    """Return the float32 value of every bit pattern of a small float type."""
    form = _MINIFLOATS[dtype]
    values = np.zeros(1 << form.bits, np.float32)
    for pattern in range(1 << form.bits):
        sign = -1.0 if form.signed and pattern >> (form.bits - 1) else 1.0
        body = pattern & ((1 << (form.exponent + form.mantissa)) - 1)
        exponent, mantissa = body >> form.mantissa, body & ((1 << form.mantissa) - 1)
        if form.nan_only_negative_zero and pattern == 1 << (form.bits - 1):
            values[pattern] = np.nan
        elif form.infinity is not None and body >= form.infinity:
            values[pattern] = sign * np.inf if body == form.infinity else np.nan
        elif form.nan is not None and body == form.nan:
            values[pattern] = np.nan
        elif exponent == 0 and form.mantissa:
            values[pattern] = sign * mantissa * 2.0 ** (1 - form.bias - form.mantissa)
        else:
            values[pattern] = sign * (1 + mantissa / (1 << form.mantissa)) * 2.0 ** (exponent - form.bias)
    return values


def _encode_minifloat(x: Array, dtype: DType, saturate: bool) -> Array:
    """Return the bit patterns (uint8) of the nearest values, ties to even.

    Values out of range become the largest finite value with `saturate`; else infinity where the type has one, else NaN,
    else (float4, float6) the largest finite value. Where the type has no NaN, NaN becomes a zero of the opposite sign,
    as in ONNX's reference implementation.
    """
    form = _MINIFLOATS[dtype]
    table = _table(dtype)
    half = table[: 1 << (form.exponent + form.mantissa)]
    finite = half[np.isfinite(half)].astype(np.float64)
    magnitude = np.abs(x.astype(np.float64))
    nan = np.isnan(magnitude)
    magnitude = np.where(nan, 0.0, magnitude)
    upper = np.clip(np.searchsorted(finite, magnitude), 1, len(finite) - 1)
    low, high = finite[upper - 1], finite[upper]
    below, above = magnitude - low, high - magnitude
    even = (upper - 1) % 2 == 0
    body = np.where((below < above) | ((below == above) & even), upper - 1, upper)
    top = len(finite) - 1
    step = finite[top] - finite[top - 1] if form.mantissa else finite[top]
    limit = finite[top] + step / 2
    over = (magnitude > limit) | ((magnitude == limit) & (top % 2 == 1))
    if saturate:
        body = np.where(magnitude > finite[top], top, body)
        if form.infinity is None and form.nan is None and not form.nan_only_negative_zero:
            over = np.zeros_like(over)
        else:
            over = over & False
    sign = (np.signbit(x) & form.signed).astype(np.int64) << (form.bits - 1)
    if form.nan_only_negative_zero:
        sign = np.where(body == 0, 0, sign)
        bits = np.where(nan | over, 1 << (form.bits - 1), body | sign)
    else:
        overflow = form.infinity if form.infinity is not None else form.nan if form.nan is not None else top
        bits = np.where(over, overflow, body) | sign
        no_nan = sign ^ (1 << (form.bits - 1))
        bits = np.where(nan, no_nan if form.nan is None else form.nan | sign, bits)
    return np.asarray(bits, np.uint8)


def _encode_bfloat16(x: Array) -> Array:
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(x), np.uint16(0x7FC0) | ((bits >> 16) & 0x8000).astype(np.uint16), rounded)


def _pack(values: Array, bits: int) -> Array:
    """Pack elements of `bits` bits into bytes, the first element in the low bits, padding the last byte with zeros."""
    if 8 % bits:
        stream = np.unpackbits(values.reshape(-1, 1), axis=1, count=bits, bitorder="little")
        return np.packbits(stream.reshape(-1), bitorder="little")
    per_byte = 8 // bits
    flat = values.reshape(-1).astype(np.uint8) & ((1 << bits) - 1)
    flat = np.concatenate([flat, np.zeros(-len(flat) % per_byte, np.uint8)]).reshape(-1, per_byte)
    shifts = np.arange(per_byte, dtype=np.uint8) * np.uint8(bits)
    packed: Array = np.bitwise_or.reduce(flat << shifts, axis=1).astype(np.uint8)
    return packed


def _unpack(raw: Array, bits: int, size: int) -> Array:
    if 8 % bits:
        stream = np.unpackbits(raw, count=size * bits, bitorder="little").reshape(size, bits)
        return np.packbits(stream, axis=1, bitorder="little").reshape(-1)
    shifts = np.arange(8 // bits, dtype=np.uint8) * np.uint8(bits)
    elements: Array = ((raw[:, None] >> shifts) & np.uint8((1 << bits) - 1)).reshape(-1)[:size]
    return elements


def decode(raw: bytes | bytearray | memoryview | Array, dtype: DType, shape: tuple[int, ...]) -> Array:
    """Decode raw_data to a NumPy array in the type's carrier.

    For exact carriers the result is a view of `raw` (read-only if `raw` is), for others a new array.

    Raises:
        ValueError: `raw` does not have `dtype.nbytes(prod(shape))` bytes.
    """
    size = 1
    for dim in shape:
        size *= dim
    buffer = np.frombuffer(raw, np.uint8)
    if buffer.size != dtype.nbytes(size):
        raise ValueError(f"{dtype.onnx_name}{list(shape)} takes {dtype.nbytes(size)} bytes, got {buffer.size}")
    if dtype.exact_carrier:
        return buffer.view(dtype.numpy).reshape(shape)
    if dtype is DType.BFLOAT16:
        return (buffer.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32).reshape(shape)
    bits = _unpack(buffer, dtype.bits, size) if dtype.bits < 8 else buffer
    if dtype.is_float:
        return _table(dtype)[bits].reshape(shape)
    if dtype.is_signed:
        sign = np.uint8(1 << (dtype.bits - 1))
        return ((bits ^ sign).astype(np.int8) - np.int8(sign)).reshape(shape)
    return bits.reshape(shape)


def encode(array: Array, dtype: DType, saturate: bool = False) -> Array:
    """Encode an array in its carrier as raw_data: a flat uint8 array, little endian.

    Integers wrap around. `saturate` applies to 8-bit floats: values out of range become the largest finite value
    (True), or infinity or NaN (False), as in ONNX's Cast. Without it, values that the type represents, such as
    infinity, are unchanged.
    """
    flat = np.ascontiguousarray(array).reshape(-1)
    if dtype.exact_carrier:
        return flat.astype(dtype.numpy, copy=False).view(np.uint8)
    if dtype is DType.BFLOAT16:
        return _encode_bfloat16(flat.astype(np.float32, copy=False)).view(np.uint8)
    if dtype.is_float:
        bits = _encode_minifloat(flat, dtype, saturate)
        return _pack(bits, dtype.bits) if dtype.bits < 8 else bits
    return _pack(flat.astype(np.int64).astype(np.uint8), dtype.bits)


def round_to(array: Array, dtype: DType, saturate: bool = False) -> Array:
    """Round every element to a value of `dtype`; the result is in the type's carrier."""
    if dtype.exact_carrier:
        return array.astype(dtype.numpy, copy=False)
    return decode(encode(array, dtype, saturate), dtype, array.shape)

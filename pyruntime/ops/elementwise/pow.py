"""Pow: z = x^y in the type of x. Source: ONNX operator Pow."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Target, elementwise, inp, out
from pyruntime.ops.base import LATEST, Unsupported, op
from pyruntime.ops.elementwise.conversions import convert
from pyruntime.ops.elementwise.elementwise import FLOATS, NUMBERS, Elementwise, Expression, compute_class

BASES = FLOATS | {DType.INT32, DType.INT64}

FLOAT_BASE = {
    "f32": "power(a, b)",
    "i32": "power_with_parity(a, f32(b), true, (b & 1) == 1)",
    "u32": "power_with_parity(a, f32(b), true, (b & 1u) == 1u)",
    "i64": "power_with_parity(a, i64_to_f32(b), true, (b.x & 1u) == 1u)",
    "u64": "power_with_parity(a, u64_to_f32(b), true, (b.x & 1u) == 1u)",
}
EXPONENT = {"i32": "i64_of_i32(b)", "u32": "u64_of_u32(b)", "i64": "b"}


def _whole_power(x: Array, y: Array) -> Array:
    """Return x^y for integers, modulo the range of x. For y < 0 the result is 0 unless x is 1 or -1."""
    negative = y < 0
    size = np.where(negative, 0, y).astype(np.uint64)
    result = np.ones(np.broadcast_shapes(x.shape, y.shape), x.dtype)
    square = np.broadcast_to(x, result.shape).copy()
    size = np.broadcast_to(size, result.shape).copy()
    while size.any():
        result = np.where(size & np.uint64(1), result * square, result)
        square = square * square
        size >>= np.uint64(1)
    inverse = np.where(np.abs(x) == 1, np.where(y % 2 == 0, 1, x), 0)
    return np.where(negative, inverse, result)


def _is_whole(y: Array) -> Array:
    """Return a mask of the elements that are integers in the range of int64."""
    result: Array = (np.trunc(y) == y) & (np.abs(y.astype(np.float64)) < 2.0**63)
    return result


class _Pow(Elementwise):
    """z = x^y as in C: 1 for y = 0 or x = 1, NaN for x < 0 and fractional y. Integer x with float y truncates."""

    names = ("a", "b")
    exponents = NUMBERS

    def infer(self, x: TensorType, y: TensorType) -> tuple[TensorType, ...]:
        self.check(x, BASES)
        self.check(y, self.exponents)
        return (TensorType(x.dtype, self.broadcast(x, y)),)

    def evaluate(self, x: Array, y: Array) -> tuple[Array, ...]:
        with np.errstate(all="ignore"):
            if x.dtype.kind == "f":
                wide = np.float64 if x.dtype == np.float64 or y.dtype.itemsize > 2 else np.float32
                z = np.power(x.astype(wide), y.astype(wide))
            elif y.dtype.kind == "f":
                whole = _is_whole(y)
                fraction = convert(np.asarray(np.power(x.astype(np.float64), y.astype(np.float64))), x.dtype)
                z = np.where(whole, _whole_power(x, np.where(whole, y, 0).astype(np.int64)), fraction)
            else:
                z = _whole_power(x, y)
            return (convert(np.asarray(z), x.dtype),)

    def expression(self, *dtypes: DType | None) -> Expression | None:
        x, y = (compute_class(d) if d else "" for d in dtypes)
        code = None
        if x == "f32":
            code = FLOAT_BASE.get(y)
        elif y in EXPONENT:
            code = f"{x}_pow(a, {EXPONENT[y]})" if x in ("i32", "i64") else None
        return Expression(code, self.names) if code else None

    def lower(self, target: Target, x: TensorType, y: TensorType) -> tuple[Dispatch, ...]:
        base = compute_class(x.dtype)
        if base not in ("i32", "i64") or compute_class(y.dtype) != "f32":
            return super().lower(target, x, y)
        # Fractional exponents of integers need float64; constant integral ones do not.
        if not y.is_known or not _is_whole(y.value()).all():
            raise Unsupported(self.reason(x.dtype, y.dtype))
        (z,) = self.infer(x, y)
        code = f"{base}_pow(a, i64_of_f32(b))"
        return (elementwise(target, "pow", {"a": inp(0, x), "b": inp(1, y)}, out(0, z), code),)


@op("Pow", opsets=range(12, LATEST + 1))
class Pow(_Pow):
    """z = x^y, where x and y may have different number types."""


@op("Pow", opsets=range(7, 12))
class PowFloat(_Pow):
    """z = x^y, where x and y have the same float type."""

    def infer(self, x: TensorType, y: TensorType) -> tuple[TensorType, ...]:
        self.same_dtype(x, y)
        return super().infer(x, y)

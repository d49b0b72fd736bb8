"""Clip: y = min(high, max(low, x)). Source: ONNX operator Clip."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, DType, TensorType, ValueType
from pyruntime.ops.base import LATEST, op
from pyruntime.ops.elementwise.elementwise import NUMBERS, Elementwise, Expression, classes, compute_class

LARGEST = {
    DType.FLOAT: float(np.finfo(np.float32).max),
    DType.FLOAT16: 65504.0,
    DType.BFLOAT16: 255 * 2.0**120,
    DType.DOUBLE: float(np.finfo(np.float64).max),
}
"""Largest finite value of the float types. It replaces an absent bound, so infinities are clipped."""

AT_LEAST = {
    "f32": "at_least({x}, low)",
    "i32": "max({x}, low)",
    "u32": "max({x}, low)",
    "i64": "i64_max({x}, low)",
    "u64": "u64_max({x}, low)",
}
AT_MOST = {
    "f32": "at_most({x}, high)",
    "i32": "min({x}, high)",
    "u32": "min({x}, high)",
    "i64": "i64_min({x}, high)",
    "u64": "u64_min({x}, high)",
}


@op("Clip", opsets=range(11, LATEST + 1))
class Clip(Elementwise):
    """y = min(high, max(low, x)), so high wins where low > high. Bounds are scalars.

    NaN in x is kept, and a NaN bound is ignored, as in onnxruntime.
    """

    dtypes = NUMBERS

    def infer(
        self, x: TensorType, low: TensorType | None = None, high: TensorType | None = None
    ) -> tuple[TensorType, ...]:
        self.same_dtype(x, low, high)
        self.check(x, self.dtypes)
        for bound in (low, high):
            if bound is not None and bound.size != 1:
                self.fail("scalar bounds", f"one of shape {list(bound.shape)}")
        return (TensorType(x.dtype, x.shape),)

    def evaluate_typed(
        self, types: tuple[ValueType | None, ...], x: Array, low: Array | None = None, high: Array | None = None
    ) -> tuple[Array, ...]:
        assert isinstance(types[0], TensorType)
        return (self.compute(x, low, high, LARGEST.get(types[0].dtype)),)

    def evaluate(self, x: Array, low: Array | None = None, high: Array | None = None) -> tuple[Array, ...]:
        return (self.compute(x, low, high, LARGEST.get(DType.from_numpy(x.dtype))),)

    def compute(self, x: Array, low: Array | None, high: Array | None, largest: float | None) -> Array:
        """Clip x to the bounds; an absent bound is `-largest` or `largest`."""
        kind = x.dtype.type
        if low is not None:
            x = x if np.isnan(low).any() else np.maximum(x, low.reshape(()))
        elif largest:
            x = np.maximum(x, kind(-largest))
        if high is not None:
            x = x if np.isnan(high).any() else np.minimum(x, high.reshape(()))
        elif largest:
            x = np.minimum(x, kind(largest))
        return np.asarray(x)

    def expression(self, *dtypes: DType | None) -> Expression | None:
        dtype, low, high = (*dtypes, None, None)[:3]
        kind = compute_class(dtype) if dtype else ""
        if not dtype or kind not in AT_LEAST:
            return None
        code, scalars = "x", {}
        if low or dtype in LARGEST:
            code = AT_LEAST[kind].format(x=code)
        if high or dtype in LARGEST:
            code = AT_MOST[kind].format(x=code)
        if not low and dtype in LARGEST:
            scalars["low"] = -LARGEST[dtype]
        if not high and dtype in LARGEST:
            scalars["high"] = LARGEST[dtype]
        return Expression(code, ("x", *(["low"] if low else []), *(["high"] if high else [])), scalars)


@op("Clip", opsets=range(6, 11))
class Clip6(Elementwise):
    """y = min(max, max(min, x)), with attributes as bounds."""

    scalars = ("min", "max")
    wgsl = classes(f32="at_most(at_least(x, min), max)")

    min: float = -3.4028234663852886e38
    max: float = 3.4028234663852886e38

    def compute(self, x: Array) -> Array:
        result: Array = np.minimum(np.maximum(x, x.dtype.type(self.min)), x.dtype.type(self.max))
        return result

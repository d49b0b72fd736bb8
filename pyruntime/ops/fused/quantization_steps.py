"""Quantize and Dequantize: QuantizeLinear and DequantizeLinear as elementwise operators that can be fused.

    Quantize      y = saturate(round(x / scale) + zero)
    Dequantize    y = (x - zero) scale

Scales and zero points broadcast to x by NumPy's rules. Passes of `passes/quantization/` create these operators.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.ir import Array, DType, TensorType, ValueType
from pyruntime.ops.base import op
from pyruntime.ops.elementwise.elementwise import Elementwise, Expression
from pyruntime.ops.quantization.parameters import RANGES

__all__ = ["STORED", "Dequantize", "Quantize"]

STORED = (DType.INT8, DType.UINT8, DType.INT16, DType.UINT16)
"""Result types of Quantize. Its values are in range, so a fused consumer needs no rounding by a store."""


def _names(dtypes: tuple[DType | None, ...]) -> tuple[str, ...]:
    return ("x", "scale", "zero")[: 3 if len(dtypes) > 2 and dtypes[2] is not None else 2]


@op("Quantize", opsets=range(1, 2), domain="pyruntime")
class Quantize(Elementwise):
    """x, scale: float32; zero: any type, in units of scale. y: integers of 8 or 16 bits, with TensorProto code `to`."""

    to: int

    @property
    def dtype(self) -> DType:
        """Element type of y."""
        return DType.from_code(self.to)

    def infer(self, x: TensorType, scale: TensorType, zero: TensorType | None = None) -> tuple[TensorType, ...]:
        given = [t for t in (x, scale, zero) if t is not None]
        return (TensorType(self.dtype, self.broadcast(*given)),)

    def evaluate_typed(self, types: tuple[ValueType | None, ...], *inputs: Any) -> tuple[Array, ...]:
        x, scale, zero = (*inputs, None)[:3]
        low, high = RANGES[self.dtype]
        with np.errstate(all="ignore"):
            level = np.rint(x / scale) + (0 if zero is None else zero.astype(np.float32))
            level = np.where(np.isnan(level), low, np.clip(level, low, high))
        return (np.asarray(level, self.dtype.numpy),)

    def expression(self, *dtypes: DType | None) -> Expression | None:
        if dtypes[:2] != (DType.FLOAT, DType.FLOAT):
            return None
        low, high = RANGES[self.dtype]
        names = _names(dtypes)
        zero = "f32(zero)" if len(names) > 2 else "0.0"
        code = f"{self.dtype.compute}(quantize(near_quotient(x, scale), {zero}, {low}.0, {high}.0))"
        return Expression(code, names)


@op("Dequantize", opsets=range(1, 2), domain="pyruntime")
class Dequantize(Elementwise):
    """x: integers of 8 to 32 bits; scale: float32; zero: any type, in units of scale. y: float32."""

    def infer(self, x: TensorType, scale: TensorType, zero: TensorType | None = None) -> tuple[TensorType, ...]:
        given = [t for t in (x, scale, zero) if t is not None]
        return (TensorType(DType.FLOAT, self.broadcast(*given)),)

    def evaluate_typed(self, types: tuple[ValueType | None, ...], *inputs: Any) -> tuple[Array, ...]:
        x, scale, zero = (*inputs, None)[:3]
        level = x.astype(np.float32)
        if zero is not None:
            level = level - zero.astype(np.float32)
        return (np.asarray(level * scale, np.float32),)

    def expression(self, *dtypes: DType | None) -> Expression | None:
        if dtypes[0] is None or dtypes[0].compute not in ("i32", "u32") or dtypes[1] is not DType.FLOAT:
            return None
        names = _names(dtypes)
        return Expression("(f32(x) - f32(zero)) * scale" if len(names) > 2 else "f32(x) * scale", names)

"""QuantizeLinear: y = saturate(round(x / scale) + zero point). Source: ONNX operator QuantizeLinear.

The quotient is first rounded to `precision` (default: the scale's type), then to an integer, half to even. NaN becomes
the smallest integer.
"""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, DType, TensorType, ValueType
from pyruntime.ir.encoding import round_to
from pyruntime.kernels import Dispatch, Operand, Target, inp, out
from pyruntime.kernels.wgsl.storage import rounded
from pyruntime.ops.base import LATEST, Unsupported, op
from pyruntime.ops.elementwise.cast import LARGEST_8
from pyruntime.ops.elementwise.elementwise import compute_class
from pyruntime.ops.quantization.parameters import RANGES, ScaledOp, quantized

CHUNK = 1 << 16
"""Number of elements to process at a time, chosen to fit the CPU cache."""

PRECISIONS = frozenset((DType.FLOAT, DType.FLOAT16, DType.BFLOAT16))
SOURCES = PRECISIONS | {DType.INT32}
SCALES = SOURCES | {DType.FLOAT8E8M0}
SMALL_FLOATS = frozenset((DType.FLOAT4E2M1, DType.FLOAT6E2M3, DType.FLOAT6E3M2))
TARGETS = frozenset(RANGES) | frozenset(LARGEST_8) | SMALL_FLOATS


@op(
    "QuantizeLinear",
    opsets=range(23, LATEST + 1),
    earlier={
        range(21, 23): "precision",
        range(19, 21): "precision block_size output_dtype",
        range(13, 19): "precision block_size output_dtype saturate",
        range(10, 13): "precision block_size output_dtype saturate axis",
    },
)
class QuantizeLinear(ScaledOp):
    """y = saturate(round(x / scale) + zero point); before opset 13 with a scalar scale."""

    axis: int = 1
    saturate: int = 1
    block_size: int = 0
    output_dtype: int = 0
    precision: int = 0

    def to(self, zero: TensorType | None) -> DType:
        """Return the output type."""
        given = DType.from_code(self.output_dtype) if self.output_dtype else None
        if zero is not None and given and zero.dtype is not given:
            self.fail(f"a zero point of {given.type_string}, as output_dtype says", zero.dtype.type_string)
        return given or (zero.dtype if zero is not None else DType.UINT8)

    def quotient_dtype(self, scale: TensorType) -> DType:
        """Return the type to which the quotient is rounded."""
        if self.precision:
            return DType.from_code(self.precision)
        return scale.dtype if scale.dtype in PRECISIONS else DType.FLOAT

    def infer(self, x: TensorType, scale: TensorType, zero: TensorType | None = None) -> tuple[TensorType, ...]:
        to = self.to(zero)
        for value, allowed in ((x.dtype, SOURCES), (scale.dtype, SCALES), (to, TARGETS)):
            if value not in allowed:
                self.fail(" or ".join(sorted(d.onnx_name for d in allowed)), value.type_string)
        if self.quotient_dtype(scale) not in PRECISIONS:
            self.fail("a precision of float, float16 or bfloat16", self.quotient_dtype(scale).type_string)
        if zero is not None and zero.size != scale.size:
            self.fail(f"a zero point of shape {list(scale.shape)}, as the scale", list(zero.shape))
        self.layout(x, scale)
        return (TensorType(to, x.shape),)

    def evaluate_typed(self, types: tuple[ValueType | None, ...], *inputs: Array | None) -> tuple[Array, ...]:
        x, scale, zero = (*types, None)[:3]
        assert isinstance(x, TensorType) and isinstance(scale, TensorType) and not isinstance(zero, tuple)
        to = self.to(zero if isinstance(zero, TensorType) else None)
        layout = self.layout(x, scale)
        values, scales, zeros = (*inputs, None)[:3]
        assert values is not None and scales is not None
        offset = np.zeros((1, 1, 1), np.float32) if zeros is None else layout.spread(zeros).astype(np.float32)
        step = layout.spread(scales).astype(np.float32)
        precision = self.quotient_dtype(scale)
        if step.size > 1 or to not in RANGES:
            return (self._levels(values.reshape(layout.shape), step, offset, precision, to).reshape(x.shape),)
        flat, y = values.reshape(-1), np.empty(values.size, to.numpy)
        for first in range(0, flat.size, CHUNK):
            chunk = slice(first, first + CHUNK)
            y[chunk] = self._levels(flat[chunk], step.reshape(()), offset.reshape(()), precision, to)
        return (y.reshape(x.shape),)

    def _levels(self, x: Array, scale: Array, offset: Array, precision: DType, to: DType) -> Array:
        """Return x / scale, rounded to `precision` and then to the type `to`, plus `offset`."""
        with np.errstate(all="ignore"):
            exact = x.astype(np.float32, copy=False) / scale
            quotient: Array = round_to(exact, precision).astype(np.float32, copy=False)
            if to not in RANGES:
                return round_to(quotient + offset if to in SMALL_FLOATS else quotient, to, bool(self.saturate))
            low, high = map(np.float32, RANGES[to])
            level = np.rint(quotient, out=quotient)
            level += offset
            np.fmax(level, low, out=level)  # NaN becomes `low`
            return np.minimum(level, high, out=level).astype(to.numpy)

    def lower(
        self, target: Target, x: TensorType, scale: TensorType, zero: TensorType | None = None
    ) -> tuple[Dispatch, ...]:
        to = self.to(zero)
        if DType.INT32 in (scale.dtype, *([] if to.compute else [DType.INT32])):
            raise Unsupported(f"quantization to {to.onnx_name}, or with an integer scale, runs on the host")
        (y,) = self.infer(x, scale, zero)
        operands: dict[str, Operand] = {"x": inp(0, x), "scale": inp(1, scale)}
        level = "0.0"
        if zero is not None:
            operands["zero"] = inp(2, zero)
            level = "zero" if compute_class(zero.dtype) == "f32" else "f32(zero)"
        value = "x" if compute_class(x.dtype) == "f32" else "f32(x)"
        code = rounded(self.quotient_dtype(scale), f"divide_rounded({value}, scale)")
        if to in RANGES:
            code = quantized(code, level, to)
        elif to in SMALL_FLOATS:
            code = f"{code} + {level}" if zero is not None else code
        elif self.saturate:
            code = f"clip({code}, {-LARGEST_8[to]}, {LARGEST_8[to]})"
        return (self.layout(x, scale).kernel(target, "quantize_linear", operands, out(0, y), code),)

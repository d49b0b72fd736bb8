"""DequantizeLinear: y = (x - zero point) scale. Source: ONNX operator DequantizeLinear."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, DType, TensorType, ValueType
from pyruntime.kernels import Dispatch, Operand, Target, inp, out
from pyruntime.ops.base import LATEST, Unsupported, op
from pyruntime.ops.elementwise.elementwise import compute_class
from pyruntime.ops.quantization.parameters import ScaledOp
from pyruntime.ops.quantization.quantize_linear import PRECISIONS, TARGETS


@op(
    "DequantizeLinear",
    opsets=range(23, LATEST + 1),
    earlier={
        range(21, 23): "output_dtype",
        range(13, 21): "output_dtype block_size",
        range(10, 13): "output_dtype block_size axis",
    },
)
class DequantizeLinear(ScaledOp):
    """y = (x - zero point) scale; before opset 13 with a scalar scale."""

    axis: int = 1
    block_size: int = 0
    output_dtype: int = 0

    def to(self, scale: TensorType) -> DType:
        """Return the output type."""
        return DType.from_code(self.output_dtype) if self.output_dtype else scale.dtype

    def infer(self, x: TensorType, scale: TensorType, zero: TensorType | None = None) -> tuple[TensorType, ...]:
        to = self.to(scale)
        sources = TARGETS | {DType.INT32}
        scales = PRECISIONS | {DType.FLOAT8E8M0}
        for value, allowed in ((x.dtype, sources), (scale.dtype, scales), (to, PRECISIONS)):
            if value not in allowed:
                self.fail(" or ".join(sorted(d.onnx_name for d in allowed)), value.type_string)
        if zero is not None:
            self.same_dtype(x, zero)
            if zero.size != scale.size:
                self.fail(f"a zero point of shape {list(scale.shape)}, as the scale", list(zero.shape))
        self.layout(x, scale)
        return (TensorType(to, x.shape),)

    def evaluate_typed(self, types: tuple[ValueType | None, ...], *inputs: Array | None) -> tuple[Array, ...]:
        x, scale = types[:2]
        assert isinstance(x, TensorType) and isinstance(scale, TensorType)
        values, scales, zeros = (*inputs, None)[:3]
        assert values is not None and scales is not None
        layout = self.layout(x, scale)
        level = values.reshape(layout.shape)
        wide = np.float32 if x.dtype.is_float or x.dtype.bits <= 16 else np.int32
        level = level.astype(wide)
        if zeros is not None:
            level -= layout.spread(zeros).astype(wide)
        with np.errstate(all="ignore"):
            y = level.astype(np.float32, copy=False)
            y *= layout.spread(scales).astype(np.float32)
            return (y.reshape(x.shape).astype(self.to(scale).numpy, copy=False),)

    def lower(
        self, target: Target, x: TensorType, scale: TensorType, zero: TensorType | None = None
    ) -> tuple[Dispatch, ...]:
        if not x.dtype.compute:
            raise Unsupported(f"{x.dtype.onnx_name} tensors live on the host")
        (y,) = self.infer(x, scale, zero)
        operands: dict[str, Operand] = {"x": inp(0, x), "scale": inp(1, scale)}
        level = "x"
        if zero is not None:
            operands["zero"] = inp(2, zero)
            level = "x - zero"
            if compute_class(x.dtype) == "u32":
                level = "bitcast<i32>(x - zero)"
        code = f"({level}) * scale" if compute_class(x.dtype) == "f32" else f"f32({level}) * scale"
        return (self.layout(x, scale).kernel(target, "dequantize_linear", operands, out(0, y), code),)

"""QuantizeLinear and DequantizeLinear of com.microsoft, which predate ONNX's 16- and 4-bit types."""

from __future__ import annotations

from pyruntime.ir import DType, TensorType
from pyruntime.ops.base import op
from pyruntime.ops.decomposed import Decomposed, Expansion


@op("QuantizeLinear", opsets=range(1, 2), domain="com.microsoft")
class QuantizeLinear(Decomposed):
    """y = saturate(round(x / scale) + zero point); scale: scalar, or one for each index of an axis (default 1).

    As in onnxruntime, the quotient is computed in float32 even for float16.
    """

    axis: int | None = None

    def expand(
        self, body: Expansion, x: TensorType, scale: TensorType, zero: TensorType | None = None
    ) -> tuple[TensorType | None, ...]:
        to = zero.dtype if zero is not None else DType.UINT8
        axis = 1 if self.axis is None else self.axis
        precision = 0 if scale.dtype is DType.DOUBLE else DType.FLOAT.code
        return (body("QuantizeLinear", x, scale, zero, axis=axis, output_dtype=to.code, precision=precision),)


@op("DequantizeLinear", opsets=range(1, 2), domain="com.microsoft")
class DequantizeLinear(Decomposed):
    """y = (x - zero point) · scale; scale: scalar, or one for each index of an axis (default 1)."""

    axis: int | None = None

    def expand(
        self, body: Expansion, x: TensorType, scale: TensorType, zero: TensorType | None = None
    ) -> tuple[TensorType | None, ...]:
        return (body("DequantizeLinear", x, scale, zero, axis=1 if self.axis is None else self.axis),)

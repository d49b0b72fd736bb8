"""Products of 8-bit matrices with float results: MatMulIntegerToFloat, DynamicQuantizeMatMul, QGemm; and MulInteger.

Sums are exact in int32; scales and biases apply in float32. Source: onnxruntime, com.microsoft.
"""

from __future__ import annotations

from typing import Any

from pyruntime.ir import DType, TensorType
from pyruntime.ops.base import Op, op
from pyruntime.ops.decomposed import Decomposed, Expansion
from pyruntime.ops.operands import named
from pyruntime.ops.registry import newest


def scaled(
    op: Op, body: Expansion, total: TensorType, a_scale: TensorType, b_scale: TensorType, bias: TensorType | None
) -> TensorType:
    """Return total · (a_scale · b_scale) + bias in float32, for int32 `total`."""
    if a_scale.size != 1:
        op.fail("one scale for the left operand", a_scale)
    scale = body("Mul", body.cast(a_scale, DType.FLOAT), body.cast(b_scale, DType.FLOAT))
    value = body("Mul", body.cast(total, DType.FLOAT), scale)
    return value if bias is None else body("Add", value, body.cast(bias, DType.FLOAT))


@op("MatMulIntegerToFloat", opsets=range(1, 2), domain="com.microsoft")
class MatMulIntegerToFloat(Decomposed):
    """y = (a - a_zero) @ (b - b_zero) · a_scale · b_scale + bias; b's scale and zero point: scalar or per column."""

    operands = named("a b a_scale b_scale", optional="a_zero b_zero bias")

    def expand(self, body: Expansion, *inputs: Any) -> tuple[TensorType | None, ...]:
        a, b, a_scale, b_scale, a_zero, b_zero, bias = self.operands(*inputs)
        total = body("MatMulInteger", a, b, a_zero, b_zero)
        return (body.cast(scaled(self, body, total, a_scale, b_scale, bias), b_scale.dtype),)


@op("DynamicQuantizeMatMul", opsets=range(1, 2), domain="com.microsoft")
class DynamicQuantizeMatMul(Decomposed):
    """y = (q - a_zero) @ (b - b_zero) · a_scale · b_scale + bias; q, a_scale, a_zero = DynamicQuantizeLinear(a)."""

    operands = named("a b b_scale", optional="b_zero bias")

    def expand(self, body: Expansion, *inputs: Any) -> tuple[TensorType | None, ...]:
        a, b, b_scale, b_zero, bias = self.operands(*inputs)
        q, a_scale, a_zero = body.apply(newest("DynamicQuantizeLinear", present=(True, True, True)), a)
        return (scaled(self, body, body("MatMulInteger", q, b, a_zero, b_zero), a_scale, b_scale, bias),)


@op("QGemm", opsets=range(1, 2), domain="com.microsoft")
class QGemm(Decomposed):
    """y = alpha · a_scale · b_scale · (op(a - a_zero) @ op(b - b_zero) + c), c int32; quantized if y_scale is given."""

    operands = named("a a_scale a_zero? b b_scale b_zero?", optional="c y_scale y_zero")

    alpha: float = 1.0
    transA: int = 0  # noqa: N815
    transB: int = 0  # noqa: N815

    def expand(self, body: Expansion, *inputs: Any) -> tuple[TensorType | None, ...]:
        a, a_scale, a_zero, b, b_scale, b_zero, c, y_scale, y_zero = self.operands(*inputs)
        if a.rank != 2 or b.rank != 2:
            self.fail("two matrices", f"{a} and {b}")
        left = body("Transpose", a, perm=(1, 0)) if self.transA else a
        right = body("Transpose", b, perm=(1, 0)) if self.transB else b
        total = body("MatMulInteger", left, right, a_zero, b_zero)
        if c is not None:
            total = body("Add", total, c)
        if self.alpha != 1.0:
            a_scale = body("Mul", a_scale, body.number(self.alpha, DType.FLOAT))
        y = scaled(self, body, total, a_scale, b_scale, None)
        if y_scale is None:
            return (y,)
        like = (y_zero if y_zero is not None else a).dtype
        return (body("QuantizeLinear", y, y_scale, y_zero, output_dtype=like.code),)


@op("MulInteger", opsets=range(1, 2), domain="com.microsoft")
class MulInteger(Decomposed):
    """y = (a - a_zero) · (b - b_zero) in int32, with broadcasting."""

    def expand(
        self, body: Expansion, a: TensorType, a_zero: TensorType | None, b: TensorType, b_zero: TensorType | None = None
    ) -> tuple[TensorType | None, ...]:
        def centred(x: TensorType, zero: TensorType | None) -> TensorType:
            value = body.cast(x, DType.INT32)
            return value if zero is None else body("Sub", value, body.cast(zero, DType.INT32))

        return (body("Mul", centred(a, a_zero), centred(b, b_zero)),)

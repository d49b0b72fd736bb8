"""Products of 8-bit matrices with results in float: MatMulIntegerToFloat, DynamicQuantizeMatMul, QGemm, MulInteger.

Sums are exact in int32; scales and biases apply in float32. Source: onnxruntime, com.microsoft.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.ir import DType
from pyruntime.ops._composite import Composite, Runner
from pyruntime.ops.base import Op, op
from pyruntime.ops.registry import newest


def scaled(op: Op, runner: Runner, total: Any, a_scale: Any, b_scale: Any, bias: Any, to: DType = DType.FLOAT) -> Any:
    """total · (a_scale · b_scale) + bias, total int32, as `to`."""
    if runner.type_of(a_scale).size != 1:
        op.fail("one scale for the left operand", runner.type_of(a_scale))
    (value,) = runner.run(newest("Cast", to=DType.FLOAT.code), total)
    (scale,) = runner.run(newest("Mul"), _wide(runner, a_scale), _wide(runner, b_scale))
    (value,) = runner.run(newest("Mul"), value, scale)
    if bias is not None:
        (value,) = runner.run(newest("Add"), value, _wide(runner, bias))
    return value if to is DType.FLOAT else runner.run(newest("Cast", to=to.code), value)[0]


def _wide(runner: Runner, x: Any) -> Any:
    """x as float32."""
    return x if runner.type_of(x).dtype is DType.FLOAT else runner.run(newest("Cast", to=DType.FLOAT.code), x)[0]


@op("MatMulIntegerToFloat", opsets=range(1, 2), domain="com.microsoft")
class MatMulIntegerToFloat(Composite):
    """y = (a - a_zero) @ (b - b_zero) · a_scale · b_scale + bias; b's scale and zero point: one, or one a column."""

    def compose(self, runner: Runner, *inputs: Any) -> tuple[Any, ...]:
        a, b, a_scale, b_scale, a_zero, b_zero, bias = (*inputs, None, None, None)[:7]
        (total,) = runner.run(newest("MatMulInteger"), a, b, a_zero, b_zero)
        return (scaled(self, runner, total, a_scale, b_scale, bias, runner.type_of(b_scale).dtype),)


@op("DynamicQuantizeMatMul", opsets=range(1, 2), domain="com.microsoft")
class DynamicQuantizeMatMul(Composite):
    """y = (q - a_zero) @ (b - b_zero) · a_scale · b_scale + bias; q, a_scale, a_zero = DynamicQuantizeLinear(a)."""

    def compose(self, runner: Runner, *inputs: Any) -> tuple[Any, ...]:
        a, b, b_scale, b_zero, bias = (*inputs, None, None)[:5]
        made = newest("DynamicQuantizeLinear", present=(True, True, True))
        q, a_scale, a_zero = runner.run(made, a)
        (total,) = runner.run(newest("MatMulInteger"), q, b, a_zero, b_zero)
        return (scaled(self, runner, total, a_scale, b_scale, bias),)


@op("QGemm", opsets=range(1, 2), domain="com.microsoft")
class QGemm(Composite):
    """y = alpha · a_scale · b_scale · (op(a - a_zero) @ op(b - b_zero) + c), c int32; quantised where y_scale is."""

    alpha: float = 1.0
    transA: int = 0  # noqa: N815
    transB: int = 0  # noqa: N815

    def compose(self, runner: Runner, *inputs: Any) -> tuple[Any, ...]:
        a, a_scale, a_zero, b, b_scale, b_zero, c, y_scale, y_zero = (*inputs, None, None, None)[:9]
        if runner.type_of(a).rank != 2 or runner.type_of(b).rank != 2:
            self.fail("two matrices", f"{runner.type_of(a)} and {runner.type_of(b)}")
        turn = newest("Transpose", perm=(1, 0))
        left = runner.run(turn, a)[0] if self.transA else a
        right = runner.run(turn, b)[0] if self.transB else b
        (total,) = runner.run(newest("MatMulInteger"), left, right, a_zero, b_zero)
        if c is not None:
            (total,) = runner.run(newest("Add"), total, c)
        if self.alpha != 1.0:
            (a_scale,) = runner.run(newest("Mul"), a_scale, runner.constant(np.array(self.alpha, np.float32)))
        y = scaled(self, runner, total, a_scale, b_scale, None)
        if y_scale is None:
            return (y,)
        like = runner.type_of(y_zero if y_zero is not None else a).dtype
        return runner.run(newest("QuantizeLinear", output_dtype=like.code), y, y_scale, y_zero)


@op("MulInteger", opsets=range(1, 2), domain="com.microsoft")
class MulInteger(Composite):
    """y = (a - a_zero) · (b - b_zero) in int32, broadcast."""

    def compose(self, runner: Runner, *inputs: Any) -> tuple[Any, ...]:
        a, a_zero, b, b_zero = (*inputs, None)[:4]
        wide = newest("Cast", to=DType.INT32.code)
        sides = []
        for x, zero in ((a, a_zero), (b, b_zero)):
            (value,) = runner.run(wide, x)
            if zero is not None:
                (value,) = runner.run(newest("Sub"), value, runner.run(wide, zero)[0])
            sides.append(value)
        return runner.run(newest("Mul"), *sides)

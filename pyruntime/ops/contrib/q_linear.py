"""QLinear*: operators on tensors of 8 bits with scales and zero points. Source: onnxruntime, com.microsoft.

y = saturate(round(f(dequantised inputs) / y_scale) + y_zero_point), in float32, rounded half to even. Add, Mul and
AveragePool round with the zero point added, as onnxruntime does: round(... + y_zero_point).
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from pyruntime.ir import DType, TensorType
from pyruntime.ops._composite import Composite, Runner
from pyruntime.ops.base import op
from pyruntime.ops.registry import newest, op_class


class _QLinear(Composite):
    """Shared by all: scales and zero points are one for a tensor; an absent zero point is 0."""

    def dequantized(self, runner: Runner, x: Any, scale: Any, zero: Any = None) -> Any:
        """(x - zero) · scale"""
        self._check_scale(runner.type_of(scale))
        (y,) = runner.run(newest("DequantizeLinear"), x, scale, zero)
        return y

    def quantized(self, runner: Runner, x: Any, scale: Any, zero: Any, like: Any) -> Any:
        """x over `scale`, in the type of `like`."""
        self._check_scale(runner.type_of(scale))
        made = newest("QuantizeLinear", output_dtype=runner.type_of(like).dtype.code)
        (y,) = runner.run(made, x, scale, zero)
        return y

    def rounded_with_zero(self, runner: Runner, x: Any, scale: Any, zero: Any, like: Any) -> Any:
        """x over `scale` plus the zero point, rounded to the type of `like`."""
        self._check_scale(runner.type_of(scale))
        (value,) = runner.run(newest("Div"), x, scale)
        if zero is not None:
            (value,) = runner.run(newest("Add"), value, runner.run(newest("Cast", to=DType.FLOAT.code), zero)[0])
        return self.quantized(runner, value, runner.constant(np.array(1, np.float32)), None, like)

    def _check_scale(self, scale: TensorType) -> None:
        if scale.size != 1:
            self.fail("one scale for a tensor", scale)


@op("QLinearAdd", opsets=range(1, 2), domain="com.microsoft")
class QLinearAdd(_QLinear):
    """a + b, broadcast."""

    def compose(self, runner: Runner, *inputs: Any) -> tuple[Any, ...]:
        a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (*inputs, None)[:8]
        left = self.dequantized(runner, a, a_scale, a_zero)
        (y,) = runner.run(newest("Add"), left, self.dequantized(runner, b, b_scale, b_zero))
        return (self.rounded_with_zero(runner, y, y_scale, y_zero, a),)


@op("QLinearMul", opsets=range(1, 2), domain="com.microsoft")
class QLinearMul(_QLinear):
    """a · b, broadcast."""

    def compose(self, runner: Runner, *inputs: Any) -> tuple[Any, ...]:
        a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (*inputs, None)[:8]
        left = self.dequantized(runner, a, a_scale, a_zero)
        (y,) = runner.run(newest("Mul"), left, self.dequantized(runner, b, b_scale, b_zero))
        return (self.rounded_with_zero(runner, y, y_scale, y_zero, a),)


class _Unary(_QLinear):
    """Inputs: x, its scale and zero point, y's scale and zero point."""

    def function(self) -> Any:
        """The operator on float32."""
        raise NotImplementedError

    def compose(self, runner: Runner, *inputs: Any) -> tuple[Any, ...]:
        x, x_scale, x_zero, y_scale, y_zero = (*inputs, None)[:5]
        (y,) = runner.run(self.function(), self.dequantized(runner, x, x_scale, x_zero))
        return (self.quantized(runner, y, y_scale, y_zero, x),)


@op("QLinearSigmoid", opsets=range(1, 2), domain="com.microsoft")
class QLinearSigmoid(_Unary):
    """1 / (1 + exp(-x))"""

    def function(self) -> Any:
        return newest("Sigmoid")


@op("QLinearLeakyRelu", opsets=range(1, 2), domain="com.microsoft")
class QLinearLeakyRelu(_Unary):
    """x, or alpha · x where it is negative."""

    alpha: float = 0.01

    def function(self) -> Any:
        return newest("LeakyRelu", alpha=self.alpha)


@op("QLinearSoftmax", opsets=range(1, 2), domain="com.microsoft")
class QLinearSoftmax(_Unary):
    """Softmax as ONNX has it at version `opset`."""

    opset: int
    axis: int = -1

    def function(self) -> Any:
        made: Any = op_class("Softmax", "", self.opset)
        return made(axis=self.axis)


@op("QLinearReduceMean", opsets=range(1, 2), domain="com.microsoft")
class QLinearReduceMean(_QLinear):
    """The mean over `axes`."""

    axes: tuple[int, ...]
    keepdims: int

    def compose(self, runner: Runner, *inputs: Any) -> tuple[Any, ...]:
        x, x_scale, x_zero, y_scale, y_zero = (*inputs, None)[:5]
        axes = runner.constant(np.array(self.axes, np.int64))
        made = newest("ReduceMean", keepdims=self.keepdims)
        (y,) = runner.run(made, self.dequantized(runner, x, x_scale, x_zero), axes)
        return (self.quantized(runner, y, y_scale, y_zero, x),)


class _Pool(_Unary):
    """Pooling of [N, C, ...], or [N, ..., C] where channels_last."""

    channels_last = 0
    zero_first: ClassVar[bool] = False

    def compose(self, runner: Runner, *inputs: Any) -> tuple[Any, ...]:
        x, x_scale, x_zero, y_scale, y_zero = (*inputs, None)[:5]
        value = self.dequantized(runner, x, x_scale, x_zero)
        rank = runner.type_of(x).rank
        if self.channels_last:
            (value,) = runner.run(newest("Transpose", perm=(0, rank - 1, *range(1, rank - 1))), value)
        (y,) = runner.run(self.function(), value)
        if self.channels_last:
            (y,) = runner.run(newest("Transpose", perm=(0, *range(2, rank), 1)), y)
        store = self.rounded_with_zero if self.zero_first else self.quantized
        return (store(runner, y, y_scale, y_zero, x),)


@op("QLinearAveragePool", opsets=range(1, 2), domain="com.microsoft")
class QLinearAveragePool(_Pool):
    """The mean over windows."""

    zero_first: ClassVar[bool] = True
    kernel_shape: tuple[int, ...]
    auto_pad: str = "NOTSET"
    ceil_mode: int = 0
    channels_last: int = 0
    count_include_pad: int = 0
    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None

    def function(self) -> Any:
        given: dict[str, Any] = {"pads": self.pads, "strides": self.strides}
        return newest(
            "AveragePool",
            kernel_shape=self.kernel_shape,
            auto_pad=self.auto_pad,
            ceil_mode=self.ceil_mode,
            count_include_pad=self.count_include_pad,
            **{name: value for name, value in given.items() if value is not None},
        )


@op("QLinearGlobalAveragePool", opsets=range(1, 2), domain="com.microsoft")
class QLinearGlobalAveragePool(_Pool):
    """The mean of every channel."""

    channels_last: int = 0

    def function(self) -> Any:
        return newest("GlobalAveragePool")


@op("QLinearConcat", opsets=range(1, 2), domain="com.microsoft")
class QLinearConcat(_QLinear):
    """Inputs: y's scale and zero point, then x, scale and zero point of every part."""

    axis: int

    def compose(self, runner: Runner, *inputs: Any) -> tuple[Any, ...]:
        y_scale, y_zero, *parts = inputs
        if len(parts) < 3 or len(parts) % 3:
            self.fail("a tensor, a scale and a zero point for every part", f"{len(parts)} inputs")
        values = [self.dequantized(runner, *parts[i : i + 3]) for i in range(0, len(parts), 3)]
        (y,) = runner.run(newest("Concat", axis=self.axis), *values)
        return (self.quantized(runner, y, y_scale, y_zero, y_zero),)


@op("QLinearWhere", opsets=range(1, 2), domain="com.microsoft")
class QLinearWhere(_QLinear):
    """x where the condition holds, else y."""

    def compose(self, runner: Runner, *inputs: Any) -> tuple[Any, ...]:
        condition, x, x_scale, x_zero, y, y_scale, y_zero, z_scale, z_zero = inputs
        left = self.dequantized(runner, x, x_scale, x_zero)
        (z,) = runner.run(newest("Where"), condition, left, self.dequantized(runner, y, y_scale, y_zero))
        return (self.quantized(runner, z, z_scale, z_zero, x),)

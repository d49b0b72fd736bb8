"""QLinear* operators on 8-bit tensors with scales and zero points. Source: onnxruntime, com.microsoft.

y = saturate(round(f(dequantized inputs) / y_scale) + y_zero_point), in float32, rounded half to even. As in
onnxruntime, Add, Mul and AveragePool add the zero point before rounding: round(... + y_zero_point).
"""

from __future__ import annotations

from typing import Any, ClassVar

from pyruntime.ir import DType, TensorType
from pyruntime.ops.base import Op, op
from pyruntime.ops.convolution.conv_integer import QLinearConv as _OnnxQLinearConv
from pyruntime.ops.decomposed import Decomposed, Expansion
from pyruntime.ops.microsoft.channels_last import channels_first, channels_last
from pyruntime.ops.microsoft.products.fused_conv import ConvAttributes
from pyruntime.ops.operands import named
from pyruntime.ops.registry import newest, op_class


class _QLinear(Decomposed):
    """Base of QLinear operators. Scales and zero points are per tensor; a missing zero point is 0."""

    def dequantized(self, body: Expansion, x: TensorType, scale: TensorType, zero: TensorType | None) -> TensorType:
        """Return (x - zero) · scale."""
        self._check_scale(scale)
        return body("DequantizeLinear", x, scale, zero)

    def quantized(
        self, body: Expansion, x: TensorType, scale: TensorType, zero: TensorType | None, like: TensorType
    ) -> TensorType:
        """Quantize x to the type of `like`."""
        self._check_scale(scale)
        return body("QuantizeLinear", x, scale, zero, output_dtype=like.dtype.code)

    def rounded_with_zero(
        self, body: Expansion, x: TensorType, scale: TensorType, zero: TensorType | None, like: TensorType
    ) -> TensorType:
        """Quantize x to the type of `like`, adding the zero point before rounding."""
        self._check_scale(scale)
        value = body("Div", x, scale)
        if zero is not None:
            value = body("Add", value, body.cast(zero, DType.FLOAT))
        return self.quantized(body, value, body.number(1.0, DType.FLOAT), None, like)

    def _check_scale(self, scale: TensorType) -> None:
        if scale.size != 1:
            self.fail("one scale for a tensor", scale)


@op("QLinearConv", opsets=range(1, 2), domain="com.microsoft")
class QLinearConv(ConvAttributes):
    """ONNX's QLinearConv. With channels_last, x and y are [N, D1 .. Dn, C], and w remains [M, C / group, K1 .. Kn]."""

    operands = _OnnxQLinearConv.operands

    channels_last: int = 0

    def expand(self, body: Expansion, *inputs: Any) -> tuple[TensorType | None, ...]:
        return (self.convolved(body, "QLinearConv", bool(self.channels_last), *inputs),)


class _Binary(_QLinear):
    """Base of binary operators with broadcasting."""

    operands = named("a a_scale a_zero? b b_scale b_zero? y_scale", optional="y_zero")

    function: ClassVar[str]

    def expand(self, body: Expansion, *inputs: Any) -> tuple[TensorType | None, ...]:
        a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = self.operands(*inputs)
        left, right = self.dequantized(body, a, a_scale, a_zero), self.dequantized(body, b, b_scale, b_zero)
        return (self.rounded_with_zero(body, body(self.function, left, right), y_scale, y_zero, a),)


@op("QLinearAdd", opsets=range(1, 2), domain="com.microsoft")
class QLinearAdd(_Binary):
    """a + b, broadcast."""

    function: ClassVar[str] = "Add"


@op("QLinearMul", opsets=range(1, 2), domain="com.microsoft")
class QLinearMul(_Binary):
    """a · b, broadcast."""

    function: ClassVar[str] = "Mul"


class _Unary(_QLinear):
    """Base of unary operators. Inputs: x, its scale and zero point, y's scale and zero point."""

    operands = named("x x_scale x_zero? y_scale y_zero?")

    def function(self, body: Expansion, x: TensorType) -> TensorType:
        """Apply the operator in float32."""
        raise NotImplementedError(f"{self.op_type}.function")

    def expand(self, body: Expansion, *inputs: Any) -> tuple[TensorType | None, ...]:
        x, x_scale, x_zero, y_scale, y_zero = self.operands(*inputs)
        y = self.function(body, self.dequantized(body, x, x_scale, x_zero))
        return (self.stored(body, y, y_scale, y_zero, x),)

    def stored(
        self, body: Expansion, y: TensorType, scale: TensorType, zero: TensorType | None, like: TensorType
    ) -> TensorType:
        """Quantize y to the type of `like`."""
        return self.quantized(body, y, scale, zero, like)


class _UnaryOfFour(_Unary):
    """`_Unary` with an optional last input."""

    operands = named("x x_scale x_zero? y_scale", optional="y_zero")


@op("QLinearSigmoid", opsets=range(1, 2), domain="com.microsoft")
class QLinearSigmoid(_UnaryOfFour):
    """1 / (1 + exp(-x))"""

    def function(self, body: Expansion, x: TensorType) -> TensorType:
        return body("Sigmoid", x)


@op("QLinearLeakyRelu", opsets=range(1, 2), domain="com.microsoft")
class QLinearLeakyRelu(_UnaryOfFour):
    """x, or alpha · x for negative x."""

    alpha: float = 0.01

    def function(self, body: Expansion, x: TensorType) -> TensorType:
        return body("LeakyRelu", x, alpha=self.alpha)


@op("QLinearReduceMean", opsets=range(1, 2), domain="com.microsoft")
class QLinearReduceMean(_UnaryOfFour):
    """Mean over `axes`."""

    axes: tuple[int, ...]
    keepdims: int

    def function(self, body: Expansion, x: TensorType) -> TensorType:
        return body("ReduceMean", x, body.ints(*self.axes), keepdims=self.keepdims)


@op("QLinearSoftmax", opsets=range(1, 2), domain="com.microsoft")
class QLinearSoftmax(_Unary):
    """Softmax as defined in ONNX opset `opset`."""

    opset: int
    axis: int = -1

    def function(self, body: Expansion, x: TensorType) -> TensorType:
        made: Any = op_class("Softmax", "", self.opset)
        y: TensorType = body.apply(made(axis=self.axis), x)[0]
        return y


@op("QLinearGlobalAveragePool", opsets=range(1, 2), domain="com.microsoft")
class QLinearGlobalAveragePool(_Unary):
    """Mean of each channel of [N, C, ...], or with channels_last of [N, ..., C]."""

    channels_last: int = 0

    def function(self, body: Expansion, x: TensorType) -> TensorType:
        return pooled(body, newest("GlobalAveragePool"), x, self.channels_last)


@op("QLinearAveragePool", opsets=range(1, 2), domain="com.microsoft")
class QLinearAveragePool(_UnaryOfFour):
    """Mean over windows of [N, C, ...], or with channels_last of [N, ..., C].

    With count_include_pad, means are over all kernel positions, including those that only ceil_mode adds.
    """

    kernel_shape: tuple[int, ...]
    auto_pad: str = "NOTSET"
    ceil_mode: int = 0
    channels_last: int = 0
    count_include_pad: int = 0
    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None

    def function(self, body: Expansion, x: TensorType) -> TensorType:
        if not (self.ceil_mode and self.count_include_pad):
            pool = self._pool(auto_pad=self.auto_pad, pads=self.pads, ceil_mode=self.ceil_mode)
            return pooled(body, pool, x, self.channels_last)
        pool = self._pool(auto_pad=self.auto_pad, pads=self.pads, ceil_mode=1)
        spatial = x.shape[1:-1] if self.channels_last else x.shape[2:]
        window = pool.window(spatial, self.kernel_shape, True)
        reached = [(n - 1) * s + k for n, s, k in zip(window.output, window.strides, window.kernel, strict=True)]
        after = [max(r - b - d, 0) for r, b, d in zip(reached, window.begin, spatial, strict=True)]
        lead, last = ([0], [0]) if self.channels_last else ([0, 0], [])
        padded = body("Pad", x, body.ints(*lead, *window.begin, *last, *lead, *after, *last))
        return pooled(body, self._pool(), padded, self.channels_last)

    def _pool(self, **attributes: Any) -> Any:
        given = {"kernel_shape": self.kernel_shape, "strides": self.strides, **attributes}
        given["count_include_pad"] = self.count_include_pad
        return newest("AveragePool", **{name: value for name, value in given.items() if value is not None})

    def stored(
        self, body: Expansion, y: TensorType, scale: TensorType, zero: TensorType | None, like: TensorType
    ) -> TensorType:
        return self.rounded_with_zero(body, y, scale, zero, like)


def pooled(body: Expansion, pool: Op, x: TensorType, last: int) -> TensorType:
    """Apply `pool`, defined on [N, C, ...], to x, which is [N, ..., C] with `last`."""
    y: TensorType = body.apply(pool, channels_first(body, x) if last else x)[0]
    return channels_last(body, y) if last else y


@op("QLinearConcat", opsets=range(1, 2), domain="com.microsoft")
class QLinearConcat(_QLinear):
    """Inputs: y's scale and zero point, then x, scale and zero point of each part."""

    axis: int

    def expand(
        self, body: Expansion, y_scale: TensorType, y_zero: TensorType, first: TensorType, *rest: TensorType | None
    ) -> tuple[TensorType | None, ...]:
        given: tuple[Any, ...] = (first, *rest)
        if len(given) % 3:
            self.fail("a tensor, a scale and a zero point for every part", f"{len(given)} inputs")
        parts = (self.dequantized(body, *given[i : i + 3]) for i in range(0, len(given), 3))
        return (body("Concat", *(self.quantized(body, x, y_scale, y_zero, y_zero) for x in parts), axis=self.axis),)


@op("QLinearWhere", opsets=range(1, 2), domain="com.microsoft")
class QLinearWhere(_QLinear):
    """x where the condition is true, else y."""

    operands = named("condition x x_scale x_zero? y y_scale y_zero? z_scale z_zero?")

    def expand(self, body: Expansion, *inputs: Any) -> tuple[TensorType | None, ...]:
        condition, x, x_scale, x_zero, y, y_scale, y_zero, z_scale, z_zero = self.operands(*inputs)
        left, right = self.dequantized(body, x, x_scale, x_zero), self.dequantized(body, y, y_scale, y_zero)
        return (self.quantized(body, body("Where", condition, left, right), z_scale, z_zero, x),)

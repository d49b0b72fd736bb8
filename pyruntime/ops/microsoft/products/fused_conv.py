"""Convolutions fused with their consumers, or channels-last. Source: com.microsoft operators of these names.

FusedConv      y = activation(Conv(x, w, b) + z)
NhwcConv       Conv of x: [N, D1 .. Dn, C] with w: [M, K1 .. Kn, C / group]; y: [N, O1 .. On, M]
NhwcFusedConv  FusedConv of x and z: [N, .., C]; w: [M, C / group, K1 .. Kn] as in Conv
"""

from __future__ import annotations

from typing import Any, ClassVar

from pyruntime.ir import TensorType
from pyruntime.ops.base import attributes, op
from pyruntime.ops.convolution.sliding import conv_attributes
from pyruntime.ops.decomposed import Decomposed, Expansion
from pyruntime.ops.microsoft.channels_last import channels_first, channels_last
from pyruntime.ops.microsoft.products.activation import activate
from pyruntime.ops.operands import named


@attributes
class ConvAttributes(Decomposed):
    """The attributes of Conv."""

    auto_pad: str = "NOTSET"
    dilations: tuple[int, ...] | None = None
    group: int = 1
    kernel_shape: tuple[int, ...] | None = None
    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None

    def convolved(self, body: Expansion, name: str, last: bool, x: TensorType, *others: Any) -> TensorType:
        """The ai.onnx convolution `name` of x and its other inputs; `last`: x and y are [N, D1 .. Dn, C]."""
        y = body(name, channels_first(body, x) if last else x, *others, **conv_attributes(self))
        return channels_last(body, y) if last else y


@op("FusedConv", opsets=range(1, 2), domain="com.microsoft")
class FusedConv(ConvAttributes):
    """x: [N, C, D1 .. Dn], w: [M, C / group, K1 .. Kn], b: [M], z like y; floats of one type."""

    operands = named("x w", optional="b z")
    has_channels_last: ClassVar[bool] = False

    activation: str | None = None
    activation_params: tuple[float, ...] | None = None

    def expand(self, body: Expansion, *inputs: Any) -> tuple[TensorType | None, ...]:
        x, w, b, z = self.operands(*inputs)
        y = self.convolved(body, "Conv", self.has_channels_last, x, w, b)
        if z is not None:
            if z.shape != y.shape:
                self.fail(f"z to be {y}", z)
            y = body("Add", y, z)
        return (activate(self, body, y, self.activation, self.activation_params or ()),)


@op("NhwcFusedConv", opsets=range(1, 2), domain="com.microsoft")
class NhwcFusedConv(FusedConv):
    """x: [N, D1 .. Dn, C], w: [M, C / group, K1 .. Kn], b: [M], z like y; floats of one type."""

    has_channels_last: ClassVar[bool] = True


@op("NhwcConv", opsets=range(1, 2), domain="com.microsoft")
class NhwcConv(ConvAttributes):
    """x: [N, D1 .. Dn, C], w: [M, K1 .. Kn, C / group], b: [M], floats of one type. `kernel_shape` is K1 .. Kn."""

    def expand(
        self, body: Expansion, x: TensorType, w: TensorType, b: TensorType | None = None
    ) -> tuple[TensorType | None, ...]:
        return (self.convolved(body, "Conv", True, x, channels_first(body, w), b),)

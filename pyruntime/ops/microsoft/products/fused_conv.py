"""Convolutions with what follows them. Source: com.microsoft operators of these names.

FusedConv      y = activation(Conv(x, w, b) + z)
NhwcConv       Conv of x: [N, D1 .. Dn, C] with w: [M, K1 .. Kn, C / group]; y: [N, O1 .. On, M]
NhwcFusedConv  FusedConv of x and z: [N, .., C]; w: [M, C / group, K1 .. Kn] as Conv has it
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyruntime.ir import TensorType
from pyruntime.ops.base import op
from pyruntime.ops.decomposed import Decomposed, Expansion
from pyruntime.ops.microsoft.channels_last import channels_first, channels_last
from pyruntime.ops.microsoft.products.activation import activate


@dataclass(frozen=True, kw_only=True)
class _Conv(Decomposed):
    """The attributes of Conv."""

    auto_pad: str = "NOTSET"
    dilations: tuple[int, ...] | None = None
    group: int = 1
    kernel_shape: tuple[int, ...] | None = None
    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None

    @property
    def conv(self) -> dict[str, Any]:
        """The attributes that Conv has too."""
        names = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
        return {name: getattr(self, name) for name in names}

    def finished(self, body: Expansion, y: TensorType, z: TensorType | None) -> TensorType:
        """activation(y + z)."""
        if z is not None:
            if z.shape != y.shape:
                self.fail(f"z to be {y}", z)
            y = body("Add", y, z)
        numbers = getattr(self, "activation_params", None) or ()
        return activate(self, body, y, getattr(self, "activation", None), numbers)


@op("FusedConv", opsets=range(1, 2), domain="com.microsoft")
class FusedConv(_Conv):
    """x: [N, C, D1 .. Dn], w: [M, C / group, K1 .. Kn], b: [M], z of y's shape: floats of one type."""

    activation: str | None = None
    activation_params: tuple[float, ...] | None = None

    def expand(
        self,
        body: Expansion,
        x: TensorType,
        w: TensorType,
        b: TensorType | None = None,
        z: TensorType | None = None,
    ) -> tuple[TensorType | None, ...]:
        return (self.finished(body, body("Conv", x, w, b, **self.conv), z),)


@op("NhwcFusedConv", opsets=range(1, 2), domain="com.microsoft")
class NhwcFusedConv(_Conv):
    """x: [N, D1 .. Dn, C], w: [M, C / group, K1 .. Kn], b: [M], z of y's shape: floats of one type."""

    activation: str | None = None
    activation_params: tuple[float, ...] | None = None

    def expand(
        self,
        body: Expansion,
        x: TensorType,
        w: TensorType,
        b: TensorType | None = None,
        z: TensorType | None = None,
    ) -> tuple[TensorType | None, ...]:
        y = channels_last(body, body("Conv", channels_first(body, x), w, b, **self.conv))
        return (self.finished(body, y, z),)


@op("NhwcConv", opsets=range(1, 2), domain="com.microsoft")
class NhwcConv(_Conv):
    """x: [N, D1 .. Dn, C], w: [M, K1 .. Kn, C / group], b: [M], floats of one type. `kernel_shape` is K1 .. Kn."""

    def expand(
        self, body: Expansion, x: TensorType, w: TensorType, b: TensorType | None = None
    ) -> tuple[TensorType | None, ...]:
        weights = channels_first(body, w)
        return (channels_last(body, body("Conv", channels_first(body, x), weights, b, **self.conv)),)

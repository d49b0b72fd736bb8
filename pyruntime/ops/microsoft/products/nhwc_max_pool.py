"""NhwcMaxPool: MaxPool of x: [N, D1 .. Dn, C]. Source: com.microsoft.NhwcMaxPool."""

from __future__ import annotations

from pyruntime.ir import TensorType
from pyruntime.ops.base import op
from pyruntime.ops.decomposed import Decomposed, Expansion
from pyruntime.ops.microsoft.channels_last import channels_first, channels_last


@op("NhwcMaxPool", opsets=range(1, 2), domain="com.microsoft")
class NhwcMaxPool(Decomposed):
    """x: int8 or uint8 (and floats, which onnxruntime refuses)."""

    auto_pad: str = "NOTSET"
    ceil_mode: int = 0
    dilations: tuple[int, ...] | None = None
    kernel_shape: tuple[int, ...]
    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None

    def expand(self, body: Expansion, x: TensorType) -> tuple[TensorType | None, ...]:
        y = body(
            "MaxPool",
            channels_first(body, x),
            auto_pad=self.auto_pad,
            ceil_mode=self.ceil_mode,
            dilations=self.dilations,
            kernel_shape=self.kernel_shape,
            pads=self.pads,
            strides=self.strides,
        )
        return (channels_last(body, y),)

"""What a convolution on the GPU computes with: its operands, and what every kernel of one is told of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pyruntime.ir import DType, hint
from pyruntime.kernels.dispatch import Operand
from pyruntime.kernels.kernel import Kernel
from pyruntime.kernels.template import template
from pyruntime.kernels.window import Window

__all__ = ["Convolution"]


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution's operands.

    Attributes:
        window: over three spatial axes (`as_volume`).
        group: groups of input and output channels.
        channels, rows: input and output channels of a group.
        x: [N, C, D1 .. Dn]. w: [M, C / group, K1 .. Kn]; transposed [C, M / group, K1 .. Kn]. bias: [M].
        y: [N, M, O1 .. On], float or int32.
        x_zero_point, w_zero_point: subtracted from x and w; scalars, w's also [M].
        taps_last: w is bytes [M, K1 .. Kn, C / group rounded up to a multiple of four].
    """

    window: Window
    group: int
    channels: int
    rows: int
    x: Operand
    w: Operand
    y: Operand
    bias: Operand | None = None
    x_zero_point: Operand | None = None
    w_zero_point: Operand | None = None
    taps_last: bool = False

    @property
    def flops(self) -> int:
        """A multiplication and an addition for every tap of every window (transposed: without its edges)."""
        pixels = min((math.prod(o.type.shape[2:]) for o in (self.x, self.y)), key=hint)
        return 2 * self.x.type.shape[0] * pixels * self.rows * self.group * self.channels * self.window.taps

    def operands(self, kernel: Kernel) -> tuple[Operand, ...]:
        """The operands `kernel` binds, in its order."""
        given = (getattr(self, b.name) for b in kernel.bindings)
        return tuple(operand for operand in given if operand is not None)

    def dtypes(self) -> dict[str, DType]:
        """Element types by binding name."""
        names = ("x", "w", "y", "bias", "x_zero_point", "w_zero_point")
        return {n: o.type.dtype for n in names if (o := getattr(self, n)) is not None}

    def kernel(self, name: str, **defines: int) -> Kernel:
        """The template with the defines every convolution kernel has."""
        flags = {"BIAS": self.bias, "ZERO_X": self.x_zero_point, "ZERO_W": self.w_zero_point}
        defines |= {flag: 1 for flag, operand in flags.items() if operand is not None}
        return template(name, self.dtypes(), **{k: v for k, v in defines.items() if v})

    def sizes(self) -> dict[str, list[int] | int]:
        """The Params fields the GEMM and the direct kernel share."""
        window = self.window
        per_channel = self.w_zero_point is not None and self.w_zero_point.type.size > 1
        return {
            "input": [*window.input, self.x.type.shape[1]],
            "output": [*window.output, window.pixels],
            "strides": list(window.strides),
            "dilations": list(window.dilations),
            "pads": list(window.begin),
            "rows": self.rows,
            "channels": self.channels,
            "groups": self.group,
            "zero_stride": int(per_channel),
        }

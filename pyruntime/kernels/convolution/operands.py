"""What a convolution on the GPU computes with: its operands, and what every kernel of one is told of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyruntime.ir import DType, hint
from pyruntime.kernels.ir.dispatch import Dispatch, Operand
from pyruntime.kernels.ir.launch import launch
from pyruntime.kernels.windows import Window

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
        weights_last: w is bytes [M, K1 .. Kn, C / group rounded up to a multiple of four].
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
    weights_last: bool = False

    @property
    def flops(self) -> int:
        """A multiplication and an addition for each filter position of each window (transposed: without its edges)."""
        pixels = min((math.prod(o.type.shape[2:]) for o in (self.x, self.y)), key=hint)
        return 2 * self.x.type.shape[0] * pixels * self.rows * self.group * self.channels * self.window.positions

    @property
    def is_half(self) -> bool:
        """True where x and w are float16 as they are."""
        plain = self.x_zero_point is None and self.w_zero_point is None
        return plain and self.x.type.dtype is self.w.type.dtype is DType.FLOAT16

    def launch(
        self, name: str, grid: tuple[int, int, int], defines: Mapping[str, object], params: Mapping[str, Any]
    ) -> Dispatch:
        """The dispatch of a template, with the conditions that every convolution kernel has."""
        tensors = {n: getattr(self, n) for n in ("x", "w", "y", "bias", "x_zero_point", "w_zero_point")}
        flags = {"BIAS": self.bias, "ZERO_X": self.x_zero_point, "ZERO_W": self.w_zero_point}
        return launch(name, tensors, grid, {**flags, **defines}, params, self.flops)

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

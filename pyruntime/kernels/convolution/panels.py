"""Convolutions by weights in panels of eight output channels, for targets whose invocations run one after the other."""

from __future__ import annotations

from pyruntime.kernels.convolution.operands import Convolution
from pyruntime.kernels.ir.dispatch import Dispatch
from pyruntime.target import Target

__all__ = ["PANEL", "convolve_panels", "steps_along"]

PANEL = 8
"""Output channels of a panel: two vectors."""

LEAST_CHANNELS = 8
"""Channels from which on they are the innermost steps, if the kernel's rows are not longer."""

MOST_PIXELS = 4
"""Pixels of an invocation: eight sums, so that these and their factors are in the registers that x86-64 has."""


def steps_along(channels: int, width: int) -> bool:
    """Whether the innermost steps are along the kernel's width, not over the channels."""
    return channels < min(LEAST_CHANNELS, width)


def convolve_panels(target: Target, conv: Convolution) -> Dispatch:
    """Return the dispatch of `shaders/convolution/conv_panels.wgsl`; w is [group, blocks, steps, PANEL]."""
    window = conv.window
    depth, height, width = window.output
    pixels = min(MOST_PIXELS, width)
    quads, blocks = -(-width // pixels), -(-conv.rows // PANEL)
    jobs = conv.x.type.shape[0] * conv.group * blocks * depth * height * quads
    KD, KH, KW = window.kernel
    flags = {"KD": KD, "KH": KH, "KW": KW, "PIXELS": pixels, "STRIDE": window.strides[2]}
    flags["ALONG"] = steps_along(conv.channels, KW)
    values = {**conv.sizes(), "quads": quads, "blocks": blocks, "jobs": jobs}
    del values["zero_stride"]
    return conv.launch("conv_panels", target.grid(jobs), flags, values)

"""Depthwise convolutions whose channels lie last: neighbouring invocations read neighbouring channels, four at once."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from pyruntime.ir import DType, multiple, upper
from pyruntime.kernels.ir.costs import Work
from pyruntime.kernels.ir.dispatch import Dispatch, Operand
from pyruntime.kernels.ir.launch import launch
from pyruntime.kernels.ir.node import facts_of
from pyruntime.kernels.selection.candidates import Candidate, Family
from pyruntime.kernels.selection.measurements import DEPTHWISE_LAST_EFFICIENCY, DEPTHWISE_LAST_LOADS
from pyruntime.kernels.windows import Window
from pyruntime.target import WORKGROUP, Target

__all__ = ["DEPTHWISE_LAST", "DepthwiseLast", "DepthwiseLastProblem", "convolve_last", "knows_last"]

MOST_COLUMNS = 40
"""Inputs of a row that an invocation keeps in registers, at most."""

_PIXELS = (4, 2, 1)


@dataclass(frozen=True, slots=True)
class DepthwiseLast:
    """The operands of a depthwise convolution with channels last.

    Attributes:
        window: over three axes (`as_volume`), of which the first is 1.
        x: [N, D1 .. Dn, C]. w: [K1 .. Kn, C]. y: [N, O1 .. On, C], floats. bias: [C].
    """

    window: Window
    x: Operand
    w: Operand
    y: Operand
    bias: Operand | None = None


@dataclass(frozen=True)
class DepthwiseLastProblem:
    """The upper bounds of the sizes of a depthwise convolution with channels last, from which its kernel is chosen."""

    images: int
    channels: int
    window: Window

    @property
    def key(self) -> str:
        """'1x56x56x96 k7x7 s1 y56x56': x, kernel, stride and dilation of rows and columns, extents of y."""
        w = self.window
        parts = [f"{self.images}x{w.input[1]}x{w.input[2]}x{self.channels}", f"k{w.kernel[1]}x{w.kernel[2]}"]
        for name, (high, wide) in (("s", w.strides[1:]), ("d", w.dilations[1:])):
            parts += [f"{name}{high}x{wide}"] if (high, wide) != (1, 1) else []
        return " ".join([*parts, f"y{w.output[1]}x{w.output[2]}"])


def knows_last(window: Window, channels: int, dtype: DType) -> bool:
    """Whether there is a kernel for this window over three axes, channels and floats of this type."""
    flat = window.input[0] == window.output[0] == window.kernel[0] == 1 and not window.begin[0]
    return bool(
        flat
        and multiple(channels, 4)
        and dtype.is_float
        and dtype.bits in (16, 32)
        and _columns(window, 1) <= MOST_COLUMNS
    )


def convolve_last(target: Target, conv: DepthwiseLast) -> tuple[Dispatch, ...]:
    """y[n, o, c] = sum over k of x[n, o * stride - pad + k * dilation, c] * w[k, c] + bias[c], sums in float32."""
    window = conv.window
    images, channels = conv.x.type.shape[0], conv.x.type.shape[-1]
    problem = DepthwiseLastProblem(upper(images), upper(channels), window.at_most)
    pixels = DEPTHWISE_LAST.choose(problem, target).way
    _, height, width = window.output
    runs, fours = -(-width // pixels), channels // 4
    jobs = images * height * runs * fours
    defines = {"KH": window.kernel[1], "KW": window.kernel[2], "STRIDE": window.strides[2], "PIXELS": pixels}
    if window.dilations[2] > 1 and window.kernel[2] > 1:
        defines["DILATION"] = window.dilations[2]
    flags = {"BIAS": conv.bias, "ROLLED": int(facts_of(target).long_epilogue)}
    values = {
        "input": [*window.input[1:], fours, images],
        "output": [height, width, runs, 0],
        "pads": [*window.begin[1:], 0, 0],
        "stride": window.strides[1],
        "dilation": window.dilations[1],
        "jobs": jobs,
    }
    tensors = {"x": conv.x, "w": conv.w, "bias": conv.bias, "y": conv.y}
    flops = 2 * images * height * width * channels * window.positions
    return (launch("conv_depthwise_last", tensors, target.grid(jobs), {**defines, **flags}, values, flops),)


def _columns(window: Window, pixels: int) -> int:
    """Inputs of a row that `pixels` neighbouring results look at."""
    return int((pixels - 1) * window.strides[2] + window.extent[2])


def _candidate(pixels: int) -> Candidate[DepthwiseLastProblem, int]:
    def refuses(p: DepthwiseLastProblem, target: Target) -> str:
        columns = _columns(p.window, pixels)
        return f"{columns} inputs of a row are too many for registers" if columns > MOST_COLUMNS else ""

    def work(p: DepthwiseLastProblem, target: Target) -> tuple[Work, ...]:
        _, height, width = p.window.output
        _, rows, across = p.window.kernel
        jobs = p.images * height * -(-width // pixels) * -(-p.channels // 4)
        loads = rows * (_columns(p.window, pixels) + across)
        flops = 2.0 * min(jobs, WORKGROUP) * 4 * pixels * rows * across
        nbytes = 4.0 * p.images * p.channels * (p.window.input[1] * p.window.input[2] + height * width)
        efficiency = min(1.0, DEPTHWISE_LAST_EFFICIENCY[pixels] * target.speed.direct)
        waits = DEPTHWISE_LAST_LOADS * loads
        return (Work(-(-jobs // WORKGROUP), WORKGROUP, flops, nbytes, efficiency, loads=waits, stops=0),)

    return Candidate(f"pixels_{pixels}", pixels, refuses, work)


DEPTHWISE_LAST: Family[DepthwiseLastProblem, int] = Family(
    "depthwise_last", tuple(map(_candidate, _PIXELS)), MappingProxyType({})
)
"""Neighbours of a row that an invocation makes: more share more loads, fewer keep more invocations busy."""

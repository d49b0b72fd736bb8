"""Convolutions with weights in panels of eight output channels, and the operator that orders weights so.

    WeightPanels    y[g, m / 8, step, m % 8] = x[m, c, k] of group g; output channels padded with zeros
    ConvPanels      Conv(x, w, b), given WeightPanels(w) instead of w

`passes/layout/weight_panels.py` creates them from Conv.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Source, Target, gather_map, inp, out
from pyruntime.kernels.convolution.operands import Convolution
from pyruntime.kernels.convolution.panels import PANEL, convolve_panels, steps_along
from pyruntime.ops.base import Op, op
from pyruntime.ops.convolution.conv import Conv, convolved_shape
from pyruntime.ops.convolution.sliding import conv_attributes, volume
from pyruntime.ops.operands import optional

__all__ = ["ConvPanels", "WeightPanels", "with_panels"]


def _panels_shape(weights: Sequence[int], group: int) -> tuple[int, int, int, int]:
    rows = weights[0] // group
    return group, -(-rows // PANEL), math.prod(weights[1:]), PANEL


@op("WeightPanels", opsets=range(1, 2), domain="pyruntime")
class WeightPanels(Op):
    """x: float32 [M, C / group, K1 .. Kn]; y: [group, blocks, steps, PANEL]."""

    group: int = 1

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        return (x.with_shape(*_panels_shape(x.shape, self.group)),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        channels, *kernel = x.shape[1:]
        group, blocks, steps, _ = _panels_shape(x.shape, self.group)
        if not steps_along(channels, kernel[-1]):
            x = np.moveaxis(x, 1, -1)
        elif len(kernel) > 1:
            x = np.moveaxis(x, 1, -2)
        rows = x.reshape(group, -1, steps)
        padded = np.pad(rows, ((0, 0), (0, blocks * PANEL - rows.shape[1]), (0, 0)))
        return (np.ascontiguousarray(np.moveaxis(padded.reshape(group, blocks, PANEL, steps), 2, 3)),)

    def lower(self, target: Target, x: TensorType) -> tuple[Dispatch, ...]:
        (y,) = self.infer(x)
        channels, *kernel = x.shape[1:]
        if steps_along(channels, kernel[-1]):
            order = (
                "let kw = step % params.width; let c = step / params.width % params.channels;\n"
                "  let k = step / (params.width * params.channels) * params.width + kw;"
            )
        else:
            order = "let c = step % params.channels; let k = step / params.channels;"
        code = (
            "let step = i / 8u % params.steps; let panel = i / (8u * params.steps);\n"
            "  let row = panel % params.blocks * 8u + i % 8u;\n"
            "  if (row >= params.rows) { return 0.0; }\n"
            f"  {order}\n"
            "  let m = panel / params.blocks * params.rows + row;\n"
            "  return load_x((m * params.channels + c) * params.positions + k);"
        )
        values = {
            "steps": y.shape[2],
            "blocks": y.shape[1],
            "rows": x.shape[0] // self.group,
            "channels": channels,
            "width": kernel[-1],
            "positions": math.prod(kernel),
        }
        name = "weight_panels_along" if steps_along(channels, kernel[-1]) else "weight_panels"
        return (gather_map(target, name, out(0, y), [Source("x", inp(0, x))], code, values),)


@op("ConvPanels", opsets=range(1, 2), domain="pyruntime")
class ConvPanels(Conv):
    """w: WeightPanels of weights of shape `weights`."""

    weights: tuple[int, ...] = ()

    def infer(self, x: TensorType, w: TensorType, b: TensorType | None = None) -> tuple[TensorType, ...]:
        return super().infer(x, w.with_shape(*self.weights), b)

    def evaluate(self, x: Array, w: Array, b: Array | None = None) -> tuple[Array, ...]:
        channels, *kernel = self.weights[1:]
        flat = np.moveaxis(w, 3, 2).reshape(self.group, -1, w.shape[2])[:, : self.weights[0] // self.group]
        if not steps_along(channels, kernel[-1]):
            weights = np.moveaxis(flat.reshape(self.weights[0], *kernel, channels), -1, 1)
        else:
            weights = np.moveaxis(flat.reshape(self.weights[0], *kernel[:-1], channels, kernel[-1]), -2, 1)
        return super().evaluate(x, weights, b)

    def lower(self, target: Target, x: TensorType, w: TensorType, b: TensorType | None = None) -> tuple[Dispatch, ...]:
        (y,) = self.infer(x, w, b)
        window = volume(convolved_shape(self, x, w.with_shape(*self.weights), self.group))
        maps, channels = self.weights[:2]
        operands = (inp(0, x), inp(1, w), out(0, y), optional(2, b))
        return (convolve_panels(target, Convolution(window, self.group, channels, maps // self.group, *operands)),)


def with_panels(conv: Conv, weights: Sequence[int]) -> ConvPanels:
    """Return the operator equivalent to `conv` for weights of this shape that WeightPanels ordered."""
    return ConvPanels(weights=tuple(weights), **conv_attributes(conv))

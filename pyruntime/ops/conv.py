"""Conv: y[n, m, o] = sum over c, k of x[n, c, o * stride - pad + k * dilation] * w[m, c, k] + b[m].

Source: ONNX operator Conv (1, 11, 22).
"""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Target, inp, out
from pyruntime.kernels.convolution import Convolution, convolve
from pyruntime.kernels.window import Window
from pyruntime.ops.base import LATEST, op
from pyruntime.ops.sliding import (
    SlidingOp,
    WindowOp,
    accumulator,
    padded,
    refuse_float64,
    taps,
    trailing,
    volume,
    windows,
)

__all__ = ["Conv", "convolution", "convolved_shape"]

COLUMNS = 1 << 23
"""Elements of the im2col matrix `convolution` makes at most; larger ones are summed tap by tap."""


def convolved_shape(op: WindowOp, x: TensorType, w: TensorType, group: int) -> Window:
    """The window of a convolution of x: [N, C, D1 .. Dn] with w: [M, C / group, K1 .. Kn]. Raises InvalidGraph."""
    spatial = op.spatial(x)
    kernel = tuple(getattr(op, "kernel_shape", None) or w.shape[2:])
    if w.rank != x.rank or kernel != w.shape[2:]:
        op.fail(f"weights [M, C / group, {', '.join(['k'] * len(spatial))}] of the kernel's shape", f"{w} for {x}")
    if group < 1 or x.shape[1] != w.shape[1] * group or w.shape[0] % group:
        op.fail(f"{group} groups of {w.shape[1]} input channels, and output channels in {group} groups", f"{x}, {w}")
    return op.window(spatial, kernel)


def convolution(x: Array, w: Array, window: Window, group: int) -> Array:
    """x: [N, C, D1 .. Dn] convolved with w: [M, C / group, K1 .. Kn]; in the arrays' own type, without bias.

    im2col and one matrix product; tap by tap for depthwise weights and where the matrix would not fit COLUMNS.
    """
    images, maps, per_group = x.shape[0], w.shape[0], w.shape[1]
    shape = (images, maps, *window.output)
    if not x.size or not w.size or not window.pixels:
        return np.zeros(shape, x.dtype)
    seen = padded(x, window)
    weights = w.reshape(group, maps // group, per_group, *window.kernel)
    if per_group == 1 or images * group * per_group * window.taps * window.pixels > COLUMNS:
        return _tap_by_tap(seen, weights, window).reshape(shape)
    columns = windows(seen, window).reshape(images, group, per_group * window.taps, window.pixels)
    rows = weights.reshape(group, maps // group, per_group * window.taps)
    y: Array = np.matmul(rows, columns)
    return y.reshape(shape)


def _tap_by_tap(seen: Array, weights: Array, window: Window) -> Array:
    """[N, group, M / group, pixels]: the sum over taps of a matrix product (a product where channels are alone)."""
    group, maps, per_group = weights.shape[:3]
    images = seen.shape[0]
    y = np.zeros((images, group, maps, window.pixels), seen.dtype)
    for tap, slices in taps(window):
        part = seen[trailing(*slices)].reshape(images, group, per_group, window.pixels)
        weight = weights[trailing(*tap)]
        y += part * weight if per_group == 1 else np.matmul(weight, part)
    return y


@op("Conv", opsets=range(1, LATEST + 1))
class Conv(SlidingOp):
    """x: [N, C, D1 .. Dn]; w: [M, C / group, K1 .. Kn]; b: [M]; floats. Halves are accumulated in float32."""

    group: int = 1
    dilations: tuple[int, ...] | None = None
    kernel_shape: tuple[int, ...] | None = None

    def infer(self, x: TensorType, w: TensorType, b: TensorType | None = None) -> tuple[TensorType, ...]:
        self.same_dtype(x, w, b)
        window = convolved_shape(self, x, w, self.group)
        if b is not None and b.shape != w.shape[:1]:
            self.fail(f"a bias [{w.shape[0]}]", b)
        return (x.with_shape(x.shape[0], w.shape[0], *window.output),)

    def evaluate(self, x: Array, w: Array, b: Array | None = None) -> tuple[Array, ...]:
        window = self.window(x.shape[2:], w.shape[2:])
        sums = accumulator(x.dtype)
        y = convolution(x.astype(sums, copy=False), w.astype(sums, copy=False), window, self.group)
        if b is not None:
            y += b.reshape(-1, *(1,) * window.rank)
        return (y.astype(x.dtype, copy=False),)

    def lower(self, target: Target, x: TensorType, w: TensorType, b: TensorType | None = None) -> tuple[Dispatch, ...]:
        refuse_float64(x)
        (y,) = self.infer(x, w, b)
        window = volume(convolved_shape(self, x, w, self.group))
        bias = None if b is None else inp(2, b)
        maps, channels = w.shape[:2]
        operands = (inp(0, x), inp(1, w), out(0, y), bias)
        return convolve(target, Convolution(window, self.group, channels, maps // self.group, *operands))

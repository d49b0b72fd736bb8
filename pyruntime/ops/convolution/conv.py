"""Conv: y[n, m, o] = sum over c, k of x[n, c, o * stride - pad + k * dilation] * w[m, c, k] + b[m].

Source: ONNX operator Conv (1, 11, 22).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Target, inp, out
from pyruntime.kernels.convolution.convolution import convolve
from pyruntime.kernels.convolution.operands import Convolution
from pyruntime.kernels.windows import Window
from pyruntime.ops.base import LATEST, op, refuse_float64
from pyruntime.ops.convolution.sliding import (
    SlidingOp,
    WindowOp,
    accumulator,
    filter_positions,
    padded,
    trailing,
    volume,
    windows,
    with_bias,
)
from pyruntime.ops.operands import optional

__all__ = ["Conv", "convolution", "convolved", "convolved_shape", "divided"]

TILE = 1 << 21
"""Elements of the im2col matrix of a tile: 8 MB of float32, large enough for a multithreaded matrix product."""

CACHED = 1 << 18
"""Elements of a tile that is summed by filter positions, chosen to fit the CPU cache."""


def convolved_shape(op: WindowOp, x: TensorType, w: TensorType, group: int) -> Window:
    """Return the window for x: [N, C, D1 .. Dn] and w: [M, C / group, K1 .. Kn]. Raises InvalidGraph."""
    spatial = op.spatial(x)
    kernel = tuple(getattr(op, "kernel_shape", None) or w.shape[2:])
    if w.rank != x.rank or kernel != w.shape[2:]:
        op.fail(f"weights [M, C / group, {', '.join(['k'] * len(spatial))}] of the kernel's shape", f"{w} for {x}")
    if group < 1 or x.shape[1] != w.shape[1] * group or w.shape[0] % group:
        op.fail(f"{group} groups of {w.shape[1]} input channels, and output channels in {group} groups", f"{x}, {w}")
    return op.window(spatial, kernel)


def convolution(x: Array, w: Array, window: Window, group: int) -> Array:
    """Convolve x: [N, C, D1 .. Dn] with w: [M, C / group, K1 .. Kn] in the arrays' dtype, without bias."""
    y = np.zeros((x.shape[0], w.shape[0], *window.output), x.dtype)
    for at, tile in convolved(x, w, window, group, lambda part: part):
        y[at] = tile
    return y


def convolved(
    x: Array, w: Array, window: Window, group: int, read: Callable[[Array], Array], parts: int = 1
) -> Iterator[tuple[tuple[slice, ...], Array]]:
    """Compute `convolution` in tiles; yields the slices of y that a tile covers, and its values.

    A tile is im2col and a matrix product. Depthwise convolutions sum over the filter positions instead.

    Args:
        read: converts a part of x to the dtype of w.
        parts: number of partial sums over K. Each is a product in the dtype of w; two or more are added in float64.
    """
    maps, per_group = w.shape[0] // group, w.shape[1]
    if not window.pixels or not x.shape[0] or not w.shape[0]:
        return
    if not x.size:
        yield (slice(None), slice(None)), np.zeros((x.shape[0], w.shape[0], *window.output), w.dtype)
        return
    weights = w.reshape(group, maps, per_group, *window.kernel)
    axis = int(np.argmax(window.output))
    each, most = (maps, CACHED) if per_group == 1 else (max(maps, per_group * window.positions), TILE)
    for images, groups, rows in _tiles(x.shape[0], group, window, axis, each, most):
        seen, part = window.part(axis, rows)
        channels = slice(groups.start * per_group, groups.stop * per_group)
        source = padded(read(x[(images, channels, *(slice(None),) * axis, seen)]), part)
        if per_group == 1:
            tile = _by_position(source, weights[groups], part)
        else:
            tile = _by_columns(source, weights[groups], part, parts)
        at = (images, slice(groups.start * maps, groups.stop * maps), *(slice(None),) * axis, rows)
        yield at, tile.reshape(tile.shape[0], -1, *part.output)


def _tiles(
    images: int, group: int, window: Window, axis: int, each: int, most: int
) -> Iterator[tuple[slice, slice, slice]]:
    """Yield slices of images, groups and outputs along `axis` for tiles of about `most` elements.

    Args:
        each: elements for one output pixel of one group.
    """
    length = window.output[axis]
    plane = window.pixels * each
    many = max(1, most // (plane * group))
    rows = min(length, max(1, most * length // plane))
    groups = group if plane * group <= most else max(1, most // plane)
    for n in range(0, images, many):
        for g in range(0, group, groups):
            for r in range(0, length, rows):
                yield slice(n, min(n + many, images)), slice(g, min(g + groups, group)), slice(r, min(r + rows, length))


def _by_columns(seen: Array, weights: Array, window: Window, parts: int) -> Array:
    """Return [N, group, M / group, pixels], computed by im2col and a matrix product."""
    group, maps, per_group = weights.shape[:3]
    depth = per_group * window.positions
    columns = windows(seen, window).reshape(seen.shape[0], group, depth, window.pixels)
    flat = weights.reshape(group, maps, depth)
    if parts == 1:
        y: Array = np.matmul(flat, columns)
        return y
    y = np.zeros((seen.shape[0], group, maps, window.pixels))
    for some in divided(depth, parts):
        y += np.matmul(flat[:, :, some], columns[:, :, some])
    return y


def divided(length: int, parts: int) -> list[slice]:
    """Split range(length) into at most `parts` slices, all but the last of equal length."""
    each = max(1, -(-length // parts))
    return [slice(at, at + each) for at in range(0, length, each)]


def _by_position(seen: Array, weights: Array, window: Window) -> Array:
    """Return [N, group, M / group, O1 .. On] of a depthwise convolution."""
    group, maps = weights.shape[:2]
    seen = seen.reshape(seen.shape[0], group, 1, *seen.shape[2:])
    y = np.zeros((seen.shape[0], group, maps, *window.output), seen.dtype)
    product = np.empty_like(y)
    for position, slices in filter_positions(window):
        weight = weights[trailing(0, *position)].reshape(group, maps, *(1,) * window.rank)
        y += np.multiply(seen[trailing(*slices)], weight, out=product)
    return y


@op("Conv", opsets=range(1, LATEST + 1))
class Conv(SlidingOp):
    """x: [N, C, D1 .. Dn]; w: [M, C / group, K1 .. Kn]; b: [M]; floats. float16 is accumulated in float32."""

    group: int = 1
    dilations: tuple[int, ...] | None = None
    kernel_shape: tuple[int, ...] | None = None

    def infer(self, x: TensorType, w: TensorType, b: TensorType | None = None) -> tuple[TensorType, ...]:
        self.floating(x, w, b)
        window = convolved_shape(self, x, w, self.group)
        if b is not None and b.shape != w.shape[:1]:
            self.fail(f"a bias [{w.shape[0]}]", b)
        return (x.with_shape(x.shape[0], w.shape[0], *window.output),)

    def evaluate(self, x: Array, w: Array, b: Array | None = None) -> tuple[Array, ...]:
        window = self.window(x.shape[2:], w.shape[2:])
        sums = accumulator(x.dtype)
        y = convolution(x.astype(sums, copy=False), w.astype(sums, copy=False), window, self.group)
        return (with_bias(y, b, x.dtype),)

    def lower(self, target: Target, x: TensorType, w: TensorType, b: TensorType | None = None) -> tuple[Dispatch, ...]:
        refuse_float64(x)
        (y,) = self.infer(x, w, b)
        window = volume(convolved_shape(self, x, w, self.group))
        maps, channels = w.shape[:2]
        operands = (inp(0, x), inp(1, w), out(0, y), optional(2, b))
        return convolve(target, Convolution(window, self.group, channels, maps // self.group, *operands))

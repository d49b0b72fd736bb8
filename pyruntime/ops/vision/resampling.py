"""Resampling along axes: the input positions and weights of each output, and the computation in NumPy.

All modes of Resize are separable. A table describes one axis: output o is the sum over t of weight[o, t] * x[index[o,
t]]. Tables are computed on the host for both providers, so that both round to the same nearest pixel. Source: ONNX
operator Resize and its reference implementation; Keys 1981 (cubic).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from pyruntime.ir import Array, hint, is_dim, lower, upper
from pyruntime.kernels.resample import AxisTable, Steps

__all__ = ["COORDINATES", "MODES", "NEAREST", "Axis", "Filter", "ratio", "resampled", "steps_of", "table_of"]

MODES = ("nearest", "linear", "cubic")
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)

HALF_WAY = np.float32(1e-6)
"""Distance from the midpoint of two elements within which a coordinate counts as a tie, as in onnxruntime."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A resized axis of `length` inputs and `output` outputs, with `scale` outputs per input.

    With tf_crop_and_resize, the crop [start, end] of the input is resized to the output. A scale of None is output /
    length for symbolic sizes.
    """

    axis: int
    length: int
    output: int
    scale: float | None
    start: float = 0.0
    end: float = 1.0

    @property
    def is_open(self) -> bool:
        """Whether the sizes are symbolic."""
        return is_dim(self.length) or is_dim(self.output)

    @property
    def is_identity(self) -> bool:
        """Whether outputs equal inputs."""
        return self.scale == 1 and self.output == self.length and (self.start, self.end) == (0, 1)


@dataclass(frozen=True, slots=True)
class Filter:
    """Interpolation attributes of Resize. `nearest` may also be 'simple', the rule of opset 10."""

    mode: str = "nearest"
    coordinates: str = "half_pixel"
    nearest: str = "round_prefer_floor"
    cubic: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False


def _coordinates(axis: Axis, mode: str, dtype: Any) -> Array:
    """Return the position of each output in the input."""
    number = dtype
    o: Array = np.arange(axis.output, dtype=dtype)
    assert axis.scale is not None
    one, half = number(1), number(0.5)
    scale, last = number(axis.scale), number(axis.length - 1)
    if mode == "asymmetric":
        return np.asarray(o / scale)
    if mode == "align_corners":
        return np.asarray(o * last / number(axis.output - 1)) if axis.output > 1 else np.zeros_like(o)
    if mode == "tf_crop_and_resize":
        start, end = number(axis.start), number(axis.end)
        if axis.output > 1:
            return np.asarray(start * last + o * (end - start) * last / number(axis.output - 1))
        return np.full_like(o, half * (start + end) * last)
    if mode == "tf_half_pixel_for_nn":
        return np.asarray((o + half) / scale)
    if mode == "pytorch_half_pixel" and axis.output <= 1:
        return np.zeros_like(o)
    if mode == "half_pixel_symmetric":
        adjustment = number(axis.output) / (scale * number(axis.length))
        offset = number(axis.length) / 2 * (one - adjustment)
        wide = np.float64  # the sum is rounded once, as in onnxruntime
        return np.asarray(wide(offset) + (o.astype(wide) + 0.5) / wide(scale) - 0.5).astype(dtype)
    return np.asarray((o + half) / scale - half)


def _nearest(x: Array, rule: str, scale: float) -> Array:
    """Round coordinates to input indices."""
    if rule == "floor":
        return np.asarray(np.floor(x))
    if rule == "ceil":
        return np.asarray(np.ceil(x))
    if rule == "simple":
        return np.asarray(np.ceil(x) if scale < 1 else np.trunc(x))
    low = np.floor(x)
    past = (x - low) - x.dtype.type(0.5)
    tie = np.abs(past) <= HALF_WAY
    return np.asarray(low + np.where(tie, rule == "round_prefer_ceil", past > 0))


def _linear(distance: Array) -> Array:
    """Return the triangle kernel of half-width 1."""
    return np.asarray(np.clip(1 - np.abs(distance), 0, 1))


def _cubic(distance: Array, a: float) -> Array:
    """Return Keys' cubic kernel of half-width 2."""
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def ratio(output: int, length: int) -> float | None:
    """Return output / length, or None if it depends on symbolic sizes."""
    if not is_dim(output) and not is_dim(length):
        return output / length if length else 1.0
    seen = Fraction(hint(output), hint(length)) if hint(length) else Fraction(1)
    rest = output * seen.denominator - length * seen.numerator
    return None if is_dim(rest) or rest else float(seen)


def steps_of(axis: Axis, how: Filter) -> Steps | None:
    """Return the table of one axis (`table_of`) as a formula in integers, or None if there is none.

    The nearest element is that of float32 arithmetic. If the scale is exact, a quotient rounds to an integer or
    half-integer only if it is one; with align_corners as long as numerators are exact in float32. If the scale follows
    from sizes, `Steps.rounded` reproduces its rounding.
    """
    if axis.scale is None:
        if how.mode == "nearest" and how.coordinates != "align_corners":
            return _by_sizes(axis, how)
        up, down = axis.output, axis.length
    else:
        exact = Fraction(axis.scale)
        up, down = exact.numerator, exact.denominator
        if max(up, down) > 64:
            return None
    place = _place(axis, how.coordinates, up, down)
    if place is None:
        return None
    a, b, c = place
    if how.mode == "nearest":
        if how.nearest == "ceil" or (how.nearest == "simple" and up < down):
            b += c - 1
        elif how.nearest == "round_prefer_ceil":
            a, b, c = 2 * a, 2 * b + c, 2 * c
        elif how.nearest == "round_prefer_floor":
            a, b, c = 2 * a, 2 * b + c - 1, 2 * c
    most = 1 << 24 if how.mode == "nearest" and how.coordinates == "align_corners" else 1 << 31
    if c < 1 or upper(axis.output) * upper(a) + upper(c) + abs(lower(b)) + abs(upper(b)) >= most:
        return None
    if how.mode == "nearest":
        return Steps(axis.axis, a, b, c, axis.length, how.mode)
    half, squeeze = 1 if how.mode == "linear" else 2, None
    if how.antialias and up < down:
        half, squeeze = -(-half * down // up), (up, down)
    whole = how.antialias or how.exclude_outside
    return Steps(axis.axis, a, b, c, axis.length, how.mode, how.cubic, half, squeeze, whole, how.exclude_outside)


def _by_sizes(axis: Axis, how: Filter) -> Steps | None:
    """Return the formula of nearest interpolation whose scale follows from sizes, or None if there is none."""
    most = upper(axis.length), upper(axis.output)
    if (how.coordinates, how.nearest) != ("asymmetric", "floor") or max(most) > 1 << 13 or most[0] * most[1] >= 1 << 23:
        return None
    return Steps(axis.axis, axis.length, 0, axis.output, axis.length, "nearest", rounded=True)


def _place(axis: Axis, coordinates: str, up: int, down: int) -> tuple[int, int, int] | None:
    """Return (a, b, c) of `Steps` for `down` inputs per `up` outputs."""
    if coordinates == "asymmetric":
        return down, 0, up
    if coordinates == "tf_half_pixel_for_nn":
        return 2 * down, down, 2 * up
    if coordinates == "half_pixel" or (coordinates == "pytorch_half_pixel" and axis.output > 1):
        return 2 * down, down - up, 2 * up
    if coordinates == "align_corners" and axis.output > 1:
        return axis.length - 1, 0, axis.output - 1
    return None


def _closed(axis: Axis) -> Axis:
    """Return the axis with symbolic sizes replaced by their current values, on which the plan then depends."""
    if not axis.is_open:
        return axis
    length, output = int(axis.length), int(axis.output)
    return replace(
        axis, length=length, output=output, scale=ratio(output, length) if axis.scale is None else axis.scale
    )


def table_of(axis: Axis, how: Filter) -> AxisTable:
    """Return the table of one axis. Index -1 marks outputs outside the crop, which get the extrapolation value."""
    axis = _closed(axis)
    assert axis.scale is not None
    crop = how.coordinates == "tf_crop_and_resize"
    if how.mode == "nearest":
        # In float32, as in exporters and onnxruntime, because rounding matters at ties and integers.
        x = _coordinates(axis, how.coordinates, np.float32)
        index = np.clip(_nearest(x, how.nearest, axis.scale), 0, axis.length - 1).astype(np.int64)[:, None]
        weight = None
    else:
        x = _coordinates(axis, how.coordinates, np.float64)
        squeeze = min(axis.scale, 1.0) if how.antialias else 1.0
        half = int(np.ceil((1 if how.mode == "linear" else 2) / squeeze))
        low = np.floor(x)
        offsets = np.arange(1 - half, half + 1)
        distance = (offsets - (x - low)[:, None]) * squeeze
        weight = _linear(distance) if how.mode == "linear" else _cubic(distance, how.cubic)
        places = low.astype(np.int64)[:, None] + offsets
        if how.antialias:
            weight = weight / weight.sum(axis=1, keepdims=True)
        if how.exclude_outside:
            weight = np.where((places >= 0) & (places < axis.length), weight, 0)
            total = weight.sum(axis=1, keepdims=True)
            weight = weight / np.where(total == 0, 1, total)
        index = np.clip(places, 0, axis.length - 1)
    if crop:
        x = _coordinates(axis, how.coordinates, np.float32)  # rounding decides whether the last one is outside
        index = np.where(((x < 0) | (x > axis.length - 1))[:, None], -1, index)
    return AxisTable(axis.axis, index, weight)


def resampled(x: Array, tables: list[AxisTable], extrapolation: float) -> Array:
    """Resample x along the axis of each table. The result has x's type without weights, else the accumulator type."""
    weighted = any(t.weight is not None for t in tables)
    narrow = x.dtype == np.float32 or (x.dtype.kind in "fiub" and x.dtype.itemsize <= 2)
    wide = np.float32 if narrow else np.float64
    y = x.astype(wide) if weighted else x
    for table in tables:
        column = (-1, *(1,) * (x.ndim - table.axis - 1))
        index = np.maximum(table.index, 0)
        if table.weight is None:
            y = np.take(y, index[:, 0], axis=table.axis)
        else:
            weight = table.weight.astype(wide)
            parts = (
                np.take(y, index[:, t], axis=table.axis) * weight[:, t].reshape(column) for t in range(len(index[0]))
            )
            total = next(parts)
            for part in parts:
                total += part
            y = total
    for table in tables:
        outside = table.index[:, 0] < 0
        if outside.any():
            column = (-1, *(1,) * (x.ndim - table.axis - 1))
            y = np.where(outside.reshape(column), np.asarray(extrapolation).astype(y.dtype), y)
    return y

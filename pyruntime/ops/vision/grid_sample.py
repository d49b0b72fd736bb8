"""GridSample: y[n, c, o] = x[n, c] at position grid[n, o], by nearest, linear or cubic interpolation.

Coordinates -1 to 1 span the input, between the centers of its corner pixels with align_corners, else between their
outer borders. Integers are computed in float and truncated. Where ONNX's reference implementation and PyTorch differ
(cubic sums at a border), this is the result of PyTorch and onnxruntime. Source: ONNX operator GridSample (16, 20, 22).
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Target, bits_type, inp, launch, out
from pyruntime.ops.base import LATEST, Op, Unsupported, attributes, op, refuse_float64

FAR = 1e9
"""Coordinates beyond this, infinite or NaN are replaced by -100, which is outside any input."""

NEIGHBORS = {"nearest": 1, "linear": 2, "cubic": 4}
"""Number of input pixels per axis that contribute to an output."""


def _reflected(v: Array, low: float, high: float) -> Array:
    """Reflect v at both edges until it lies between them."""
    span = high - low
    if span <= 0:
        return np.full_like(v, low)
    past = np.where(v < low, low - v, v - high)
    turns = np.floor(past / span)
    rest = past - turns * span
    even = turns % 2 == 0
    inner = np.where(even != (v < low), high - rest, low + rest)
    return np.where((v >= low) & (v <= high), v, inner).astype(v.dtype)


@attributes
class _GridSample(Op):
    """x: [N, C, D1 .. Dr]; grid: [N, O1 .. Or, r], innermost axis first; y: [N, C, O1 .. Or] in x's type."""

    mode: str
    align_corners: int = 0
    padding_mode: str = "zeros"

    @property
    def interpolation(self) -> str:
        """'nearest', 'linear' or 'cubic'. Raises InvalidGraph for an unknown mode."""
        name = {"bilinear": "linear", "bicubic": "cubic"}.get(self.mode, self.mode)
        if name not in NEIGHBORS or self.padding_mode not in ("zeros", "border", "reflection"):
            self.fail("a known mode and padding_mode", f"{self.mode!r}, {self.padding_mode!r}")
        return name

    def infer(self, x: TensorType, grid: TensorType) -> tuple[TensorType, ...]:
        self.floating(grid)
        rank = x.rank - 2
        if rank < 1 or grid.rank != x.rank or grid.shape[-1] != rank or grid.shape[0] != x.shape[0]:
            self.fail(f"x [N, C, D1, ..] and a grid [N, O1, .., {max(rank, 1)}] of its rank", f"{x}, {grid}")
        if self.interpolation != "nearest" and x.dtype.carrier in ("object", "complex64", "complex128"):
            self.fail("mode 'nearest' for this type", x)
        if grid.size and not x.size:
            self.fail("an input with elements to sample", x)
        return (x.with_shape(*x.shape[:2], *grid.shape[1:-1]),)

    def _edges(self, extent: int) -> tuple[float, float]:
        return (0.0, extent - 1.0) if self.align_corners else (-0.5, extent - 0.5)

    def _places(self, grid: Array, extent: int) -> Array:
        """Return pixel coordinates along one axis, clamped or reflected according to the padding mode."""
        low, high = self._edges(extent)
        number = grid.dtype.type
        v = (grid + number(1)) * number(0.5) * number(high - low) + number(low)
        if self.interpolation == "nearest":
            v = np.rint(v)
        if self.padding_mode == "border":
            # Outside the border, a cubic kernel still covers inner pixels.
            reach = 2 if self.interpolation == "cubic" else 0
            inner: Array = np.clip(np.where(np.isnan(v), number(0), v), -reach, extent - 1 + reach)
            return inner
        v = np.where(np.abs(v) < FAR, v, number(-100))
        return _reflected(v, low, high) if self.padding_mode == "reflection" else v

    def _pixels(self, index: Array, extent: int) -> tuple[Array, Array]:
        """Return (index inside the input, whether the pixel contributes) of neighbors along one axis."""
        inside = np.ones(index.shape, bool)
        if self.padding_mode == "zeros":
            inside = (index >= 0) & (index < extent)
        elif self.padding_mode == "reflection":
            index = _reflected(index.astype(np.float64), *self._edges(extent)).astype(np.int64)
        return np.clip(index, 0, extent - 1), inside

    def evaluate(self, x: Array, grid: Array) -> tuple[Array, ...]:
        rank, spatial = x.ndim - 2, x.shape[2:]
        shape = (*x.shape[:2], *grid.shape[1:-1])
        if not math.prod(shape):
            return (np.zeros(shape, x.dtype),)
        wide = grid.astype(np.float64 if grid.dtype == np.float64 or x.dtype == np.float64 else np.float32)
        wide = wide.reshape(x.shape[0], -1, rank)
        flat = x.reshape(*x.shape[:2], -1)
        places = [self._places(wide[:, :, rank - 1 - a], spatial[a]) for a in range(rank)]
        low = [np.floor(p) for p in places]
        nearest, neighbors = self.interpolation == "nearest", NEIGHBORS[self.interpolation]
        total = np.zeros((*x.shape[:2], wide.shape[1]), x.dtype if nearest else wide.dtype)
        for neighbor in itertools.product(range(neighbors), repeat=rank):
            index = np.zeros(places[0].shape, np.int64)
            weight, inside = np.ones(places[0].shape, wide.dtype), np.ones(places[0].shape, bool)
            for a, t in enumerate(neighbor):
                at, counts = self._pixels(low[a].astype(np.int64) + t - (neighbors - 1) // 2, spatial[a])
                index = index * spatial[a] + at
                inside &= counts
                weight *= _weight(neighbors, t, places[a] - low[a])
            seen = np.take_along_axis(flat, index[:, None], axis=2)
            if nearest:
                total = np.where(inside[:, None], seen, total)
            else:
                total += np.where(inside[:, None], weight[:, None] * seen, 0)
        return (_cast(total, x.dtype).reshape(shape),)

    def lower(self, target: Target, x: TensorType, grid: TensorType) -> tuple[Dispatch, ...]:
        (y,) = self.infer(x, grid)
        rank, mode = x.rank - 2, self.interpolation
        if rank > 3:
            raise Unsupported(f"{rank} spatial axes; the kernel samples 3")
        refuse_float64(grid)
        moved = mode == "nearest"
        if not moved and (x.dtype is DType.DOUBLE or (x.dtype.is_integer and x.dtype.bits > 16)):
            raise Unsupported(f"sums of {x.dtype.onnx_name} are exact on the host; float32 is not")
        if not moved and x.dtype is DType.BOOL:
            raise Unsupported("bools are interpolated on the host")
        dtype = bits_type(x.dtype) if moved else x.dtype
        is_integer = not moved and x.dtype.is_integer
        flags = {
            "ALIGN": self.align_corners or None,
            "BORDER": self.padding_mode == "border",
            "REFLECT": self.padding_mode == "reflection",
            "WEIGHTED": not moved,
            "INTEGER": is_integer,
        }
        limits = np.iinfo(x.dtype.numpy) if is_integer else None
        values = {
            "input": [*(1,) * (3 - rank), *x.shape[2:], math.prod(x.shape[2:])],
            "pixels": math.prod(y.shape[2:]),
            "channels": x.shape[1],
            "size": y.size,
            "lowest": float(limits.min) if limits else 0.0,
            "highest": float(limits.max) if limits else 0.0,
        }
        tensors = {
            "x": inp(0, TensorType(dtype, x.shape)),
            "grid": inp(1, grid),
            "y": out(0, TensorType(dtype, y.shape)),
        }
        defines, flops = {"RANK": rank, "TERMS": NEIGHBORS[mode], **flags}, 2 * y.size * NEIGHBORS[mode] ** rank
        return (launch("grid_sample", tensors, target.grid(-(-y.size // 4)), defines, values, flops),)


def _weight(neighbors: int, t: int, part: Array) -> Array:
    """Return the weight of neighbor t for a position `part` past the pixel below it."""
    if neighbors == 1:
        return np.ones_like(part)
    if neighbors == 2:
        return part if t else 1 - part
    d = np.abs(part + 1 - t)
    near = (1.25 * d - 2.25) * d * d + 1
    far = ((-0.75 * d + 3.75) * d - 6) * d + 3
    weight: Array = np.where(d <= 1, near, far).astype(part.dtype)
    return weight


def _cast(total: Array, dtype: np.dtype[np.generic]) -> Array:
    """Convert sums to x's type; integers are truncated and saturated."""
    if total.dtype == dtype or dtype.kind not in "iu":
        return np.asarray(total.astype(dtype, copy=False))
    limits = np.iinfo(dtype.name)
    whole: Array = np.clip(np.trunc(total), limits.min, limits.max).astype(dtype)
    return whole


@op("GridSample", opsets=range(20, LATEST + 1))
class GridSample(_GridSample):
    """GridSample with any number of spatial axes."""

    mode: str = "linear"


@op("GridSample", opsets=range(16, 20))
class GridSample16(_GridSample):
    """GridSample with two spatial axes; modes bilinear, nearest, bicubic."""

    mode: str = "bilinear"

"""Base classes of sliding-window operators, and NumPy views of the elements that windows cover."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from pyruntime.ir import Array, TensorType
from pyruntime.kernels.windows import PADDINGS, Window, as_volume
from pyruntime.ops.base import Op, Unsupported, attributes

__all__ = [
    "SlidingOp",
    "WindowOp",
    "accumulator",
    "add_windows",
    "conv_attributes",
    "filter_positions",
    "padded",
    "trailing",
    "volume",
    "windows",
    "with_bias",
]


@attributes
class WindowOp(Op):
    """Attributes of all sliding-window operators."""

    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None

    @property
    def padding(self) -> str:
        """Value of `auto_pad`; "NOTSET" for operators without it."""
        return getattr(self, "auto_pad", "") or "NOTSET"

    def spatial(self, x: TensorType) -> tuple[int, ...]:
        """Return D1 .. Dn of x: [N, C, D1 .. Dn]. Raises InvalidGraph if there are none."""
        if x.rank < 3:
            self.fail("an input [N, C, D1, ...] with at least one spatial axis", x)
        return x.shape[2:]

    def geometry(self, rank: int, kernel: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Return strides, dilations and pads for `rank` spatial axes, checked. Raises InvalidGraph."""
        ones = (1,) * rank
        strides = self.strides or ones
        dilations = getattr(self, "dilations", None) or ones
        pads = self.pads or (0,) * (2 * rank)
        for name, values, count in (
            ("kernel_shape", kernel, rank),
            ("strides", strides, rank),
            ("dilations", dilations, rank),
            ("pads", pads, 2 * rank),
        ):
            if len(values) != count:
                self.fail(f"{count} numbers in {name} for {rank} spatial axes", list(values))
            if name != "pads" and min(values) < 1:
                self.fail(f"{name} of at least 1", list(values))
        if self.padding not in PADDINGS:
            self.fail(f"auto_pad to be one of {', '.join(PADDINGS)}", self.padding)
        return strides, dilations, pads

    def window(self, spatial: tuple[int, ...], kernel: tuple[int, ...], ceil: bool | None = None) -> Window:
        """Return the window over spatial axes D1 .. Dn.

        Args:
            ceil: ceil_mode of a pooling; None for a convolution.

        Raises:
            InvalidGraph: attributes and shape do not match.
        """
        strides, dilations, pads = self.geometry(len(spatial), kernel)
        try:
            return Window.over(spatial, kernel, strides, dilations, pads, self.padding, ceil)
        except ValueError as error:
            self.fail("windows that fit the padded input", error)


def conv_attributes(op: Op) -> dict[str, Any]:
    """The attributes of a convolution that `op` has, under the same names."""
    names = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    return {name: value for name in names if (value := getattr(op, name, None)) is not None}


@attributes
class SlidingOp(WindowOp):
    """Attributes of the operators with `auto_pad`."""

    auto_pad: str = "NOTSET"


def volume(window: Window) -> Window:
    """Return `as_volume(window)` for `lower`. Raises Unsupported for more than three spatial axes."""
    try:
        return as_volume(window)
    except ValueError as error:
        raise Unsupported(str(error)) from None


def accumulator(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype for sums over elements of `dtype`: float32 for float16, else `dtype`."""
    return np.dtype(np.float32) if dtype == np.float16 else dtype


def trailing(*index: int | slice) -> tuple[Any, ...]:
    """Return an index that applies `index` to the last axes of an array."""
    return (..., *index)


def padded(x: Array, window: Window, fill: Any = 0) -> Array:
    """Pad x: [N, C, D1 .. Dn] with `fill` (crop where pads are negative) so that every window lies inside."""
    widths = [(b, e) for b, e in zip(window.begin, window.needed, strict=True)]
    cut = tuple(slice(max(0, -b), n + min(0, e)) for (b, e), n in zip(widths, window.input, strict=True))
    x = x[trailing(*cut)]
    if all(b <= 0 and e <= 0 for b, e in widths):
        return x
    grow = [(max(0, b), max(0, e)) for b, e in widths]
    result: Array = np.pad(x, [(0, 0)] * (x.ndim - len(grow)) + grow, constant_values=fill)
    return result


def with_bias(y: Array, b: Array | None, dtype: np.dtype[Any]) -> Array:
    """Return y [N, M, ...] + b [M] as `dtype`; overwrites y."""
    if b is not None:
        y += b.reshape(-1, *(1,) * (y.ndim - 2))
    return y.astype(dtype, copy=False)


def windows(x: Array, window: Window) -> Array:
    """Return the im2col view [N, C, K1 .. Kn, O1 .. On] of a `padded` x."""
    lead, step = x.ndim - window.rank, x.strides[x.ndim - window.rank :]
    by_position = [s * d for s, d in zip(step, window.dilations, strict=True)]
    by_output = [s * t for s, t in zip(step, window.strides, strict=True)]
    shape = (*x.shape[:lead], *window.kernel, *window.output)
    return as_strided(x, shape, (*x.strides[:lead], *by_position, *by_output), writeable=False)


def filter_positions(window: Window) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """Yield each filter position (k1 .. kn), in row-major order, and the slices of a `padded` input that it reads."""
    for position in itertools.product(*map(range, window.kernel)):
        starts = [k * d for k, d in zip(position, window.dilations, strict=True)]
        yield (
            position,
            tuple(
                slice(a, a + (o - 1) * s + 1, s) for a, o, s in zip(starts, window.output, window.strides, strict=True)
            ),
        )


def add_windows(columns: Array, window: Window) -> Array:
    """Return the transpose of `windows` (col2im): sum [.., K1 .. Kn, O1 .. On] into [.., D1 .. Dn].

    Elements that no filter position reads are 0. Contributions to padding are dropped.
    """
    lead = columns.shape[: columns.ndim - 2 * window.rank]
    reach = [(o - 1) * s + e for o, s, e in zip(window.output, window.strides, window.extent, strict=True)]
    front = [max(0, -b) for b in window.begin]
    total = [max(r + f, max(0, b) + i) for r, f, b, i in zip(reach, front, window.begin, window.input, strict=True)]
    y = np.zeros((*lead, *total), columns.dtype)
    for position, seen in filter_positions(window):
        seen = tuple(slice(s.start + f, s.stop + f, s.step) for s, f in zip(seen, front, strict=True))
        y[trailing(*seen)] += columns[trailing(*position, *(slice(None),) * window.rank)]
    kept = tuple(slice(max(0, b), max(0, b) + i) for b, i in zip(window.begin, window.input, strict=True))
    result: Array = y[trailing(*kept)]
    return result

"""ConvInteger and QLinearConv: convolution of 8-bit integers, exact in int32.

    ConvInteger   y = conv(x - x_zero_point, w - w_zero_point)
    QLinearConv   y = saturate(round((ConvInteger + B) * x_scale * w_scale / y_scale) + y_zero_point)

Rounding is half to even. Zero points and scales of w are scalars or per output channel. Source: ONNX operators
ConvInteger (10), QLinearConv (10).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from pyruntime.ir import Array, Constant, DType, TensorType
from pyruntime.kernels import Dispatch, Operand, Target, constant, out, scratch
from pyruntime.kernels.convolution.convolution import convolve
from pyruntime.kernels.convolution.operands import Convolution
from pyruntime.kernels.windows import Window
from pyruntime.ops.base import LATEST, attributes, op
from pyruntime.ops.convolution.conv import convolved, convolved_shape, divided
from pyruntime.ops.convolution.sliding import SlidingOp, volume
from pyruntime.ops.operands import bound, named, reshaped
from pyruntime.ops.quantization.requantize import finished

BYTES = (DType.INT8, DType.UINT8)


@attributes
class _IntegerConv(SlidingOp):
    """Base of ConvInteger and QLinearConv: a convolution of 8-bit integers, exact in int32."""

    group: int = 1
    dilations: tuple[int, ...] | None = None
    kernel_shape: tuple[int, ...] | None = None

    def check(self, x: TensorType, w: TensorType, *others: tuple[str, TensorType | None, int]) -> Window:
        """Check the inputs and return the window.

        Args:
            others: (name, type, channels) of scales and zero points, which have 1 or `channels` elements.
        """
        if x.dtype not in BYTES or w.dtype not in BYTES:
            self.fail("8-bit x and w", f"{x}, {w}")
        for name, given, count in others:
            if given is not None and given.size not in (1, count):
                self.fail(f"{name} of 1 element{f' or {count}' if count > 1 else ''}", given)
        return convolved_shape(self, x, self.standard_type(w), self.group)

    def standard_type(self, w: TensorType) -> TensorType:
        """Return the type of w in layout [M, C / group, K1 .. Kn]; overridden for other weight layouts."""
        return w

    def standard_weights(self, w: Array) -> Array:
        """Return w in layout [M, C / group, K1 .. Kn]."""
        return w

    def exact(
        self, x: Array, w: Array, x_zero: Array | None, w_zero: Array | None, others: int = 0
    ) -> Iterator[tuple[tuple[slice, ...], Array]]:
        """Compute conv(x - x_zero, w - w_zero) in tiles; yields the slices of y that a tile covers, and its exact sums.

        The sums are float32 if it represents every partial sum exactly, also with up to `others` added. Otherwise they
        are float64, computed from a few float32 partial sums where these are exact. float64 is exact for 2^53 / 2^16
        products.
        """
        w = self.standard_weights(w)
        window = self.window(x.shape[2:], w.shape[2:])
        weights = w.astype(np.float32)
        if w_zero is not None:
            weights -= w_zero.reshape(-1, *(1,) * (w.ndim - 1))
        zero = 0 if x_zero is None else int(x_zero.reshape(()))
        limits = np.iinfo(x.dtype)
        largest = max(limits.max - zero, zero - limits.min)
        sizes = np.abs(weights).reshape(w.shape[0], -1)
        parts = _parts(sizes, largest, others, MOST_PARTS if w.shape[1] > 1 else 1)
        wide = np.float32 if parts else np.float64

        def read(part: Array) -> Array:
            return np.subtract(part, zero, dtype=wide, casting="unsafe")

        return convolved(x, weights.astype(wide, copy=False), window, self.group, read, parts or 1)

    def describe(self, x: Operand, w: Operand, y: Operand, zeros: tuple[Operand | None, Operand | None]) -> Convolution:
        """Return the description of y = conv(x - x_zero, w - w_zero) with int32 y.

        Args:
            zeros: x_zero and w_zero.
        """
        plain = self.standard_type(w.type)
        window = volume(convolved_shape(self, x.type, plain, self.group))
        maps, channels = plain.shape[:2]
        x_zero, w_zero = zeros
        return Convolution(window, self.group, channels, maps // self.group, x, w, y, None, x_zero, w_zero)


@op("ConvInteger", opsets=range(10, LATEST + 1))
class ConvInteger(_IntegerConv):
    """x: [N, C, D1 .. Dn]; w: [M, C / group, K1 .. Kn]; int8 or uint8 each. y: int32."""

    operands = named("x w", optional="x_zero w_zero")

    def infer(self, *inputs: Any) -> tuple[TensorType, ...]:
        x, w, x_zero, w_zero = self.operands(*inputs)
        window = self.check(x, w, ("x_zero_point", x_zero, 1), ("w_zero_point", w_zero, w.shape[0]))
        return (TensorType(DType.INT32, (x.shape[0], w.shape[0], *window.output)),)

    def evaluate(self, *inputs: Any) -> tuple[Array, ...]:
        x, w, x_zero, w_zero = self.operands(*inputs)
        window = self.window(x.shape[2:], self.standard_weights(w).shape[2:])
        y = np.zeros((x.shape[0], w.shape[0], *window.output), np.int32)
        for at, sums in self.exact(x, w, x_zero, w_zero):
            y[at] = _wrapped(sums)
        return (y,)

    def lower(self, target: Target, *inputs: Any) -> tuple[Dispatch, ...]:
        x, w, *zeros = bound(self.operands, inputs)
        (y,) = self.infer(*inputs)
        return convolve(target, self.describe(x, w, out(0, y), (zeros[0], zeros[1])))


@op("QLinearConv", opsets=range(10, LATEST + 1))
class QLinearConv(_IntegerConv):
    """x: [N, C, D1 .. Dn]; w: [M, C / group, K1 .. Kn]; B: int32 [M]; y has y_zero_point's type, int8 or uint8."""

    operands = named("x x_scale x_zero_point w w_scale w_zero_point y_scale y_zero_point", optional="b")

    def infer(self, *inputs: Any) -> tuple[TensorType, ...]:
        given = self.operands(*inputs)
        x, _, _, w, _, _, _, y_zero, b = given
        maps = w.shape[0]
        counts = dict.fromkeys(self.operands._fields, 1) | {"w_scale": maps, "w_zero_point": maps}
        numbers = ((name, kind, counts[name]) for name, kind in given._asdict().items() if name not in ("x", "w", "b"))
        window = self.check(x, w, *numbers)
        if b is not None and b.shape != (maps,):
            self.fail(f"a bias [{maps}]", b)
        return (TensorType(y_zero.dtype, (x.shape[0], maps, *window.output)),)

    def evaluate(self, *inputs: Any) -> tuple[Array, ...]:
        x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, b = self.operands(*inputs)
        window = self.window(x.shape[2:], self.standard_weights(w).shape[2:])
        column = (w.shape[0], *(1,) * (x.ndim - 2))
        bias = np.zeros(column, np.int32) if b is None else b.reshape(column)
        small = bias.astype(np.float32)
        factor = np.broadcast_to(_multiplier(x_scale, w_scale, y_scale).reshape(-1, *column[1:]), column)
        zero, limits = np.float32(y_zero.reshape(())), np.iinfo(y_zero.dtype)
        y = np.full((x.shape[0], w.shape[0], *window.output), y_zero.reshape(()))
        for at, sums in self.exact(x, w, x_zero, w_zero, int(np.abs(bias.astype(np.int64)).max(initial=0))):
            if sums.dtype == np.float32:
                sums += small[at[1]]
            else:
                sums = (_wrapped(sums) + bias[at[1]]).astype(np.float32)
            sums *= factor[at[1]]
            np.rint(sums, out=sums)
            sums += zero
            y[at] = np.clip(sums, np.float32(limits.min), np.float32(limits.max), out=sums)
        return (y,)

    def lower(self, target: Target, *inputs: Any) -> tuple[Dispatch, ...]:
        (y,) = self.infer(*inputs)
        given = bound(self.operands, inputs)
        sums = scratch(DType.INT32, *y.shape)
        conv = self.describe(given.x, given.w, sums, (given.x_zero_point, given.w_zero_point))
        operands = {"zero": given.y_zero_point}
        value = "x"
        if given.b is not None:
            operands["bias"] = given.b
            value = "(x + bias)"
        scales = {name: getattr(given, name) for name in ("x_scale", "w_scale", "y_scale")}
        # Constant scales are combined on the host: a WGSL division may be off by 2.5 ULP.
        if all(x.type.is_known for x in scales.values()):
            factor = _multiplier(*(x.type.value() for x in scales.values()))
            operands["factor"] = constant(Constant.from_array(factor))
            scale = "factor"
        else:
            operands |= scales
            scale = "(x_scale * w_scale / y_scale)"
        column = (1,) * (y.rank - 2)
        views = {name: reshaped(x, x.type.size, *column) for name, x in operands.items()}
        low, high = (-128, 127) if y.dtype is DType.INT8 else (0, 255)
        scaled = f"i32(round(f32({value}) * {scale})) + i32(zero)"
        expr = f"{y.dtype.compute}(clamp({scaled}, {low}, {high}))"
        return finished(target, convolve(target, conv), sums, out(0, y), "requantize", views, expr)


MOST_PARTS = 8
"""Number of partial sums above which a float64 product is as fast."""


def _parts(sizes: Array, largest: int, others: int, limit: int) -> int:
    """Return the smallest number of partial sums that are exact in float32, or 0 if more than `limit` are needed.

    Args:
        sizes: magnitudes of the weights, integers in float32 [M, K].
        largest: largest magnitude of the other factor.
        others: magnitude that is added to the sum where one part suffices.
    """
    depth, holds = sizes.shape[1], 1 << 24
    whole = _largest_sum(sizes) * largest
    if whole + others < holds:
        return 1
    for parts in range(max(2, math.ceil(whole / holds)), min(limit, depth) + 1):
        if all(_largest_sum(sizes[:, some]) * largest < holds for some in divided(depth, parts)):
            return parts
    return 0


def _largest_sum(sizes: Array) -> float:
    """Return the largest row sum."""
    return float(sizes.sum(axis=1).max(initial=0))


def _wrapped(sums: Array) -> Array:
    """Convert exact floats to int32 modulo 2^32."""
    return sums.astype(np.int64).astype(np.int32)


def _multiplier(x_scale: Array, w_scale: Array, y_scale: Array) -> Array:
    """Return x_scale * w_scale / y_scale in float32, with one element or one per output channel."""
    return np.asarray(x_scale.reshape(()) * w_scale.reshape(-1) / y_scale.reshape(()), np.float32)

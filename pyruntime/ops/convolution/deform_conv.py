"""DeformConv: a convolution that moves each filter position by an offset and scales what it reads by a mask.

y[n, m, o] = sum over c, k of w[m, c, k] * mask[n, g, k, o] * x[n, c] at (o * stride - pad + k * dilation
+ offset[n, g, k, :, o]) + b[m], with x interpolated linearly and 0 outside, g = c's offset group.

Source: ONNX operator DeformConv (19, 22); Dai et al. 2017, Zhu et al. 2018.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Target, inp, out, params_of, scratch, template
from pyruntime.kernels.convolution.convolution import convolve
from pyruntime.kernels.convolution.operands import Convolution
from pyruntime.kernels.ir.dispatch import Operand
from pyruntime.kernels.windows import Window
from pyruntime.ops.base import LATEST, Unsupported, op, refuse_float64
from pyruntime.ops.convolution.conv import convolution, convolved_shape
from pyruntime.ops.convolution.sliding import WindowOp, accumulator, volume, with_bias
from pyruntime.ops.operands import named, optional


@op("DeformConv", opsets=range(19, LATEST + 1))
class DeformConv(WindowOp):
    """x: [N, C, D1 .. Dn]; w: [M, C / group, K1 .. Kn]; offset: [N, offset_group * K * n, O1 .. On]; b: [M];
    mask: [N, offset_group * K, O1 .. On]; floats, of one type. K: the number of filter positions, K1 · .. · Kn.
    """

    operands = named("x w offset", optional="b mask")

    dilations: tuple[int, ...] | None = None
    group: int = 1
    kernel_shape: tuple[int, ...] | None = None
    offset_group: int = 1

    def infer(self, *inputs: Any) -> tuple[TensorType, ...]:
        x, w, offset, b, mask = self.operands(*inputs)
        self.same_dtype(x, w, offset, b, mask)
        window = convolved_shape(self, x, w, self.group)
        groups = self.offset_group
        if groups < 1 or x.shape[1] % groups:
            self.fail(f"{x.shape[1]} channels in offset groups of equal size", groups)
        for name, given, count in (("offset", offset, window.rank), ("mask", mask, 1)):
            shape = (x.shape[0], groups * window.positions * count, *window.output)
            if given is not None and given.shape != shape:
                self.fail(f"{name} {list(shape)}", given)
        if b is not None and b.shape != w.shape[:1]:
            self.fail(f"a bias [{w.shape[0]}]", b)
        return (x.with_shape(x.shape[0], w.shape[0], *window.output),)

    def evaluate(self, *inputs: Any) -> tuple[Array, ...]:
        x, w, offset, b, mask = self.operands(*inputs)
        window = self.window(x.shape[2:], w.shape[2:])
        sums = accumulator(x.dtype)
        columns = self.columns(x.astype(sums), offset.astype(sums), mask, window)
        pointwise = _pointwise(window)
        weights = w.astype(sums).reshape(w.shape[0], -1, *(1,) * window.rank)
        y = convolution(columns.reshape(x.shape[0], -1, *window.output), weights, pointwise, self.group)
        return (with_bias(y, b, x.dtype),)

    def columns(self, x: Array, offset: Array, mask: Array | None, window: Window) -> Array:
        """[N, C, K, pixels]: what each of K filter positions reads."""
        images, channels = x.shape[:2]
        groups, positions, pixels, rank = self.offset_group, window.positions, window.pixels, window.rank
        flat = x.reshape(images, groups, channels // groups, -1)
        moved = offset.reshape(images, groups, positions, rank, pixels)
        y = np.zeros((images, groups, channels // groups, positions * pixels), x.dtype)
        still = _positions(window)
        rows = np.arange(images)[:, None, None, None], np.arange(groups)[None, :, None, None]
        members = np.arange(channels // groups)[None, None, :, None]
        places = [moved[:, :, :, a] + still[a] for a in range(rank)]
        low = [np.floor(p) for p in places]
        for corner in itertools.product((0, 1), repeat=rank):
            index = np.zeros((images, groups, positions, pixels), np.int64)
            weight: Array = np.ones(index.shape, x.dtype)
            inside: Array = np.ones(index.shape, bool)
            for place, floor, bit, size in zip(places, low, corner, window.input, strict=True):
                at = floor + bit
                inside = inside & (at >= 0) & (at < size)
                weight = weight * (place - floor if bit else 1 - (place - floor))
                index = index * size + np.clip(np.nan_to_num(at), 0, size - 1).astype(np.int64)
            seen = flat[(*rows, members, index.reshape(images, groups, 1, -1))]
            weight = weight.reshape(images, groups, 1, -1)
            y += np.where(inside.reshape(images, groups, 1, -1), weight * seen, 0)
        if mask is not None:
            y *= mask.reshape(images, groups, 1, positions * pixels)
        return y

    def lower(self, target: Target, *inputs: Any) -> tuple[Dispatch, ...]:
        x, w, offset, b, mask = self.operands(*inputs)
        refuse_float64(x)
        (y,) = self.infer(*inputs)
        window = volume(convolved_shape(self, x, w, self.group))
        columns = scratch(DType.FLOAT, x.shape[0], x.shape[1] * window.positions, *window.output)
        if columns.type.nbytes > target.limits.buffer_bytes:
            raise Unsupported(f"its columns are {columns.type.nbytes:,} bytes, more than a buffer of the device can be")
        types = {"x": x.dtype, "offset": offset.dtype, "mask": x.dtype}
        flags = {} if mask is None else {"MASK": 1}
        kernel = template("deform_columns", types, RANK=x.rank - 2, **flags)
        params = params_of(
            kernel,
            input=[*window.input, x.shape[1]],
            output=[*window.output, window.pixels],
            kernel_shape=[*window.kernel, window.positions],
            strides=list(window.strides),
            dilations=list(window.dilations),
            pads=list(window.begin),
            per_group=x.shape[1] // self.offset_group,
            size=columns.type.size,
        )
        reads = (inp(0, x), inp(2, offset), *(() if mask is None else (inp(4, mask),)))
        first = Dispatch(kernel, (*reads, columns), target.grid(-(-columns.type.size // 4)), params)
        maps, channels = w.shape[0], w.shape[1] * window.positions
        weights = Operand(inp(1, w).role, 1, w.with_shape(maps, channels))
        rows = maps // self.group
        conv = Convolution(_pointwise(window), self.group, channels, rows, columns, weights, out(0, y), optional(3, b))
        return (first, *convolve(target, conv))


def _positions(window: Window) -> list[Array]:
    """For each axis, [K, pixels]: what the K filter positions read without offsets."""
    return [
        k[:, None] * d + o * s - b
        for k, d, o, s, b in zip(
            np.indices(window.kernel).reshape(window.rank, -1),
            window.dilations,
            np.indices(window.output).reshape(window.rank, -1),
            window.strides,
            window.begin,
            strict=True,
        )
    ]


def _pointwise(window: Window) -> Window:
    """The window of the convolution over finished columns."""
    ones, zeros = (1,) * window.rank, (0,) * window.rank
    return Window(window.output, window.output, ones, ones, ones, zeros, zeros)

"""ConvTranspose: the transpose of Conv, as a linear map.

y[n, m, o] = sum over c, k, i with i * stride - pad + k * dilation = o of x[n, c, i] * w[c, m, k], + b[m]. Source: ONNX
operator ConvTranspose (1, 11, 22).
"""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Target, inp, out
from pyruntime.kernels.convolution.convolution import convolve_transposed
from pyruntime.kernels.convolution.operands import Convolution
from pyruntime.kernels.windows import Window
from pyruntime.ops.base import LATEST, op, refuse_float64
from pyruntime.ops.convolution.sliding import SlidingOp, accumulator, add_windows, volume, with_bias
from pyruntime.ops.operands import optional


@op("ConvTranspose", opsets=range(1, LATEST + 1))
class ConvTranspose(SlidingOp):
    """x: [N, C, D1 .. Dn]; w: [C, M / group, K1 .. Kn]; b: [M]; floats. float16 is accumulated in float32.

    `output_shape` determines the padding. An odd total puts the larger half at the start, with SAME_UPPER at the end.
    """

    group: int = 1
    dilations: tuple[int, ...] | None = None
    kernel_shape: tuple[int, ...] | None = None
    output_padding: tuple[int, ...] | None = None
    output_shape: tuple[int, ...] | None = None

    def transposed(self, x: tuple[int, ...], w: tuple[int, ...]) -> Window:
        """Return the window of the transposed convolution, from y's axes to x's. Raises InvalidGraph."""
        rank = len(x) - 2
        strides, dilations, pads = self.geometry(rank, w[2:])
        adjust, shape = self.output_padding or (0,) * rank, self.output_shape or ()
        if shape and len(shape) == rank + 2:
            shape = shape[2:]
        if len(adjust) != rank or min(adjust) < 0:
            self.fail(f"{rank} numbers of at least 0 in output_padding", list(adjust))
        if shape and (len(shape) != rank or min(shape) < 1):
            self.fail(f"{rank} numbers of at least 1 in output_shape", list(shape))
        if shape and not all(x[2:]):
            self.fail("an input with elements to fill output_shape", f"{list(x)} for {list(shape)}")
        try:
            return Window.transposed(x[2:], w[2:], strides, dilations, pads, self.padding, adjust, shape)
        except ValueError as error:
            self.fail("an output of at least 1", error)

    def infer(self, x: TensorType, w: TensorType, b: TensorType | None = None) -> tuple[TensorType, ...]:
        self.floating(x, w, b)
        rank = len(self.spatial(x))
        if w.rank != x.rank or tuple(self.kernel_shape or w.shape[2:]) != w.shape[2:]:
            self.fail(f"weights [C, M / group, {', '.join(['k'] * rank)}] of the kernel's shape", f"{w} for {x}")
        if self.group < 1 or x.shape[1] != w.shape[0] or x.shape[1] % self.group:
            self.fail(f"{x.shape[1]} input channels in {self.group} groups", w)
        maps = w.shape[1] * self.group
        if b is not None and b.shape != (maps,):
            self.fail(f"a bias [{maps}]", b)
        return (x.with_shape(x.shape[0], maps, *self.transposed(x.shape, w.shape).input),)

    def evaluate(self, x: Array, w: Array, b: Array | None = None) -> tuple[Array, ...]:
        window = self.transposed(x.shape, w.shape)
        sums, group = accumulator(x.dtype), self.group
        images, channels, rows = x.shape[0], x.shape[1] // group, w.shape[1]
        pixels = x.astype(sums, copy=False).reshape(images, group, channels, window.pixels)
        weights = w.astype(sums, copy=False).reshape(group, channels, rows * window.positions)
        columns = np.matmul(weights.transpose(0, 2, 1), pixels)
        y = np.zeros((images, group * rows, *window.input), sums)
        if window.pixels:
            y = add_windows(columns.reshape(images, group * rows, *window.kernel, *window.output), window)
        return (with_bias(y, b, x.dtype),)

    def lower(self, target: Target, x: TensorType, w: TensorType, b: TensorType | None = None) -> tuple[Dispatch, ...]:
        refuse_float64(x)
        (y,) = self.infer(x, w, b)
        window = volume(self.transposed(x.shape, w.shape))
        operands = (inp(0, x), inp(1, w), out(0, y), optional(2, b))
        channels, rows = x.shape[1] // self.group, w.shape[1]
        return convolve_transposed(target, Convolution(window, self.group, channels, rows, *operands))

"""DepthwiseLast: depthwise convolution of tensors with channels last (NHWC).

y[n, o, c] = sum over k of x[n, o * stride - pad + k * dilation, c] * w[k, c] + b[c]

`passes/layout/channels_last.py` creates it from a depthwise Conv.
"""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Target, inp, out
from pyruntime.kernels.convolution.depthwise_channels_last import DepthwiseLast as Operands
from pyruntime.kernels.convolution.depthwise_channels_last import convolve_last, knows_last
from pyruntime.kernels.windows import Window
from pyruntime.ops.base import Unsupported, op
from pyruntime.ops.convolution.conv import convolution
from pyruntime.ops.convolution.sliding import SlidingOp, accumulator, volume
from pyruntime.ops.operands import optional

__all__ = ["DepthwiseLast"]


@op("DepthwiseLast", opsets=range(1, 2), domain="pyruntime")
class DepthwiseLast(SlidingOp):
    """x: [N, D1 .. Dn, C]; w: [K1 .. Kn, C]; b: [C]; floats. float16 is accumulated in float32."""

    dilations: tuple[int, ...] | None = None

    def infer(self, x: TensorType, w: TensorType, b: TensorType | None = None) -> tuple[TensorType, ...]:
        self.same_dtype(x, w, b)
        if x.rank < 3 or w.rank != x.rank - 1 or w.shape[-1] != x.shape[-1]:
            self.fail("x [N, D1, .., C] and weights [K1, .., C]", f"{x}, {w}")
        if b is not None and b.shape != w.shape[-1:]:
            self.fail(f"a bias [{w.shape[-1]}]", b)
        return (x.with_shape(x.shape[0], *self._window(x, w).output, x.shape[-1]),)

    def _window(self, x: TensorType, w: TensorType) -> Window:
        return self.window(x.shape[1:-1], w.shape[:-1])

    def evaluate(self, x: Array, w: Array, b: Array | None = None) -> tuple[Array, ...]:
        sums = accumulator(x.dtype)
        first, weights = np.moveaxis(x, -1, 1).astype(sums), np.moveaxis(w, -1, 0)[:, None].astype(sums)
        y = np.moveaxis(convolution(first, weights, self.window(x.shape[1:-1], w.shape[:-1]), x.shape[-1]), 1, -1)
        return ((y if b is None else y + b).astype(x.dtype),)

    def lower(self, target: Target, x: TensorType, w: TensorType, b: TensorType | None = None) -> tuple[Dispatch, ...]:
        (y,) = self.infer(x, w, b)
        window = volume(self._window(x, w))
        if not knows_last(window, x.shape[-1], x.dtype):
            raise Unsupported(f"no kernel for {x} and {w}")
        bias = optional(2, b)
        return convolve_last(target, Operands(window, inp(0, x), inp(1, w), out(0, y), bias))

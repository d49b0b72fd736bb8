"""Int8Conv: convolution of float32 x with integer weights of at most 8 bits, without the weights' scale.

    y = conv(x, w - w_zero_point), summed in float32

`passes/quantization/packed_weights.py` creates it from Conv and DequantizeLinear(w).
"""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Target, inp, out
from pyruntime.kernels.convolution.convolution import convolve
from pyruntime.kernels.convolution.operands import Convolution
from pyruntime.ops.base import op
from pyruntime.ops.convolution.conv import convolution, convolved_shape
from pyruntime.ops.convolution.sliding import SlidingOp, volume
from pyruntime.ops.operands import optional

__all__ = ["Int8Conv"]


@op("Int8Conv", opsets=range(1, 2), domain="pyruntime")
class Int8Conv(SlidingOp):
    """x: float32 [N, C, D1 .. Dn]; w: integers [M, C / group, K1 .. Kn]; w_zero_point: scalar or [M], in w's type."""

    group: int = 1
    dilations: tuple[int, ...] | None = None
    kernel_shape: tuple[int, ...] | None = None

    def infer(self, x: TensorType, w: TensorType, zero: TensorType | None = None) -> tuple[TensorType, ...]:
        if x.dtype is not DType.FLOAT or w.dtype.is_float or w.dtype.bits > 8:
            self.fail("float32 x and integer w of at most 8 bits", f"{x}, {w}")
        window = convolved_shape(self, x, w, self.group)
        return (x.with_shape(x.shape[0], w.shape[0], *window.output),)

    def evaluate(self, x: Array, w: Array, zero: Array | None = None) -> tuple[Array, ...]:
        window = self.window(x.shape[2:], w.shape[2:])
        weights = w.astype(np.float32)
        if zero is not None:
            weights -= zero.astype(np.float32).reshape(-1, *(1,) * (w.ndim - 1))
        return (convolution(x, weights, window, self.group),)

    def lower(
        self, target: Target, x: TensorType, w: TensorType, zero: TensorType | None = None
    ) -> tuple[Dispatch, ...]:
        (y,) = self.infer(x, w, zero)
        window = volume(convolved_shape(self, x, w, self.group))
        maps, channels = w.shape[:2]
        operands = (inp(0, x), inp(1, w), out(0, y), None, None, optional(2, zero))
        return convolve(target, Convolution(window, self.group, channels, maps // self.group, *operands))

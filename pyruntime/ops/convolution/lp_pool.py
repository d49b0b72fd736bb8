"""LpPool: y[n, c, o] = (sum over k of |x[n, c, o * stride - pad + k * dilation]|^p)^(1/p), padded with zeros.

Source: ONNX operator LpPool (2, 11, 18, 22).
"""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Target, out
from pyruntime.ops.base import LATEST, op, refuse_float64
from pyruntime.ops.convolution.pooling import PoolOp, global_pool, norm_fold, pool
from pyruntime.ops.convolution.sliding import accumulator, filter_positions, padded, trailing


@op("LpPool", opsets=range(18, LATEST + 1), earlier={range(2, 18): "ceil_mode dilations"})
class LpPool(PoolOp):
    """x: [N, C, D1 .. Dn], floats."""

    ceil_mode: int = 0
    dilations: tuple[int, ...] | None = None
    kernel_shape: tuple[int, ...]
    p: int = 2

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        if self.p < 1:
            self.fail("p of at least 1", self.p)
        self.floating(x)
        return super().infer(x)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        window = self.over(x.shape[2:]).trimmed
        powers = padded(np.abs(x.astype(accumulator(x.dtype))) ** self.p, window)
        total = np.zeros((*x.shape[:2], *window.output), powers.dtype)
        for _, slices in filter_positions(window):
            total += powers[trailing(*slices)]
        return ((total ** (1 / self.p)).astype(x.dtype),)

    def lower(self, target: Target, x: TensorType) -> tuple[Dispatch, ...]:
        refuse_float64(x)
        (y,) = self.infer(x)
        window = self.over(self.spatial(x)).trimmed
        if window.covers_all:
            return global_pool(target, norm_fold(self.p, x.dtype), x, y)
        return pool(target, "NORM", window, x, (out(0, y),), p=self.p)

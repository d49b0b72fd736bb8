"""LRN: y[n, c, i] = x[n, c, i] / (bias + alpha / size * sum of x[n, j, i]^2 over channels j near c)^beta.

The sum is over the existing channels from c - floor((size - 1) / 2) to c + ceil((size - 1) / 2). Source: ONNX operator
LRN (1, 13).
"""

from __future__ import annotations

import math

import numpy as np

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Target, inp, launch, out
from pyruntime.ops.base import LATEST, Op, op, refuse_float64
from pyruntime.ops.convolution.sliding import accumulator


@op("LRN", opsets=range(1, LATEST + 1))
class LRN(Op):
    """x: [N, C, D1 .. Dn], floats."""

    alpha: float = 1e-4
    beta: float = 0.75
    bias: float = 1.0
    size: int

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        if x.rank < 2 or self.size < 1:
            self.fail("an input [N, C, ...] and a size of at least 1", f"{x}, size {self.size}")
        return (TensorType(self.floating(x), x.shape),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        before, after = (self.size - 1) // 2, self.size // 2
        squares = x.astype(accumulator(x.dtype)) ** 2
        around = np.pad(squares, [(0, 0), (before, after), *[(0, 0)] * (x.ndim - 2)])
        total = np.zeros_like(squares)
        for k in range(self.size):
            total += around[:, k : k + x.shape[1]]
        return ((x / (self.bias + self.alpha / self.size * total) ** self.beta).astype(x.dtype),)

    def lower(self, target: Target, x: TensorType) -> tuple[Dispatch, ...]:
        refuse_float64(x)
        (y,) = self.infer(x)
        values = {
            "size": y.size,
            "channels": x.shape[1],
            "inner": math.prod(x.shape[2:]),
            "before": (self.size - 1) // 2,
            "after": self.size // 2,
            "scale": self.alpha / self.size,
            "offset": self.bias,
            "beta": self.beta,
        }
        tensors = {"x": inp(0, x), "y": out(0, y)}
        return (launch("lrn", tensors, target.grid(-(-y.size // 4)), {}, values, 2 * self.size * y.size),)

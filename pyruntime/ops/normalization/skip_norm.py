"""SkipNorm: a residual addition and the normalization of its rows, in one kernel.

    s = x' + skip + bias, y = norm(s) · scale + shift, over the last dimension

x' is x with its rows, or pieces of them, permuted by `order`; row r of y is stored as row `places[r]`. Created by
`passes/fusion/fuse_skip_norm.py` from Add and a normalization, and by SkipLayerNormalization of com.microsoft.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Target, out
from pyruntime.kernels.rows.rows import Norm, normalize_rows, rows_of
from pyruntime.ops.base import Op, op, refuse_float64
from pyruntime.ops.operands import bound, named

__all__ = ["SkipNorm"]


@op("SkipNorm", opsets=range(1, 2), domain="pyruntime")
class SkipNorm(Op):
    """x: [..., D]; scale, shift, bias: [D]; skip: trailing dimensions of s, leading ones absent or 1.

    order: uint32 [n * rows of s]; piece i of x' is piece `order[i]` of x, where pieces have D / n elements, and s has
    shape `shape` instead of x's. places: uint32 [rows of s], a permutation. Outputs: y in scale's type; mean (0 with
    `rms`) and inverse standard deviation, float32 [..., 1]; s in x's type.

    Attributes:
        rms: do not subtract the mean.
        adds: whether the operator replaces an addition.
    """

    operands = named("x scale", optional="shift skip bias order places")

    epsilon: float
    rms: int = 0
    shape: tuple[int, ...] = ()
    adds: bool = True

    @property
    def title(self) -> str:
        """Names of the fused operators."""
        norm = "RMSNormalization" if self.rms else "LayerNormalization"
        return " + ".join((*(["Transpose"] if self.shape else []), *(["Add"] if self.adds else []), norm))

    def total(self, x: TensorType) -> tuple[int, ...]:
        """Return the shape of s."""
        return self.shape or x.shape

    def infer(self, *inputs: Any) -> tuple[TensorType, ...]:
        x, scale, shift, skip, bias, order, _ = self.operands(*inputs)
        if not x.rank:
            self.fail("an input of at least one dimension", x)
        if (order is not None) != bool(self.shape):
            self.fail("an order with a shape", order)
        shape = self.total(x)
        self.same_dtype(x, skip, bias)
        self.same_dtype(scale, shift)
        for vector in (scale, shift, bias):
            if vector is not None and vector.shape != shape[-1:]:
                self.fail(f"scale, shift and bias {list(shape[-1:])}", vector)
        if skip is not None and not follows(skip.shape, shape):
            self.fail(f"a skip of the last dimensions of {list(shape)}", skip)
        stats = TensorType(DType.FLOAT, (*shape[:-1], 1))
        return TensorType(scale.dtype, shape), stats, stats, TensorType(x.dtype, shape)

    def evaluate(self, *inputs: Any) -> tuple[Array, ...]:
        x, scale, shift, skip, bias, order, places = self.operands(*inputs)
        if order is not None:
            x = x.reshape(-1, math.prod(self.shape) // order.size)[order].reshape(self.shape)
        with np.errstate(all="ignore"):
            total = x.astype(np.float64)
            for other in (skip, bias):
                if other is not None:
                    total = total + other
            mean = np.zeros((*x.shape[:-1], 1)) if self.rms else total.mean(axis=-1, keepdims=True)
            inv = 1.0 / np.sqrt(np.mean(np.square(total - mean), axis=-1, keepdims=True) + self.epsilon)
            y = (total - mean) * inv * scale
            if shift is not None:
                y = y + shift
        if places is not None:
            y = placed(y, places)
        return y.astype(scale.dtype), mean.astype(np.float32), inv.astype(np.float32), total.astype(x.dtype)

    def lower(self, target: Target, *inputs: Any) -> tuple[Dispatch, ...]:
        refuse_float64(*inputs[:2])
        types = self.infer(*inputs)
        x, scale, shift, skip, bias, order, places = bound(self.operands, inputs)
        mean, inv, total = (out(i, types[i]) if self.wants(i) else None for i in (1, 2, 3))
        norm = Norm(self.epsilon, bool(self.rms), scale, shift, mean, inv, skip, bias, total, order, places)
        shape = self.total(x.type)
        rows = rows_of(shape, len(shape) - 1, flatten=True)
        return (normalize_rows(target, out(0, types[0]), x, rows, norm),)


def placed(y: Array, places: Array) -> Array:
    """Return y with row r moved to row `places[r]`."""
    made = np.empty(y.shape, y.dtype)
    made.reshape(-1, y.shape[-1])[places] = y.reshape(-1, y.shape[-1])
    return made


def follows(skip: tuple[int, ...], x: tuple[int, ...]) -> bool:
    """Whether x is `skip` repeated as a whole, so that kernels can index `skip` modulo its size."""
    while skip and skip[0] == 1 and (len(skip) > len(x) or x[len(x) - len(skip)] != 1):
        skip = skip[1:]
    return 0 < len(skip) <= len(x) and x[len(x) - len(skip) :] == skip

"""MeanVarianceNormalization: y = (x - mean) / (sqrt(var) + 1e-9), mean and population variance over `axes`.

Source: ONNX operator MeanVarianceNormalization (1, 9, 13).
"""

from __future__ import annotations

import math

import numpy as np

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Target, inp, out, scratch, strided_copy
from pyruntime.kernels.ir.indexing import contiguous
from pyruntime.kernels.rows.groups import Groups, normalize_groups
from pyruntime.ops.base import LATEST, Op, op, refuse_float64
from pyruntime.ops.convolution.sliding import accumulator
from pyruntime.ops.decomposed import Decomposed, Expansion

EPSILON = 1e-9
_USUAL = (0, 2, 3)


@op("MeanVarianceNormalization", opsets=range(9, LATEST + 1))
class MeanVarianceNormalization(Op):
    """x: floats of any shape. Default axes that x does not have are ignored."""

    axes: tuple[int, ...] = _USUAL

    def over(self, rank: int) -> tuple[int, ...]:
        """Return the axes as sorted non-negative indices. Raises InvalidGraph."""
        axes = [a for a in self.axes if a < rank] if self.axes == _USUAL else self.axes
        return tuple(sorted({self.axis_of(a, rank) for a in axes}))

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        self.over(x.rank)
        return (TensorType(self.floating(x), x.shape),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        if not x.size:
            return (x,)
        axes = self.over(x.ndim)
        wide = x.astype(accumulator(x.dtype), copy=False)
        distance = wide - wide.mean(axis=axes, keepdims=True, dtype=np.float64)
        deviation = np.sqrt(np.mean(distance * distance, axis=axes, keepdims=True))
        return ((distance / (deviation + EPSILON)).astype(x.dtype),)

    def lower(self, target: Target, x: TensorType) -> tuple[Dispatch, ...]:
        """Transpose x so that the reduced axes are last, and back, where needed."""
        refuse_float64(x)
        axes = self.over(x.rank)
        kept = tuple(d for d in range(x.rank) if d not in axes)
        order = (*kept, *axes)
        rows = math.prod(x.shape[d] for d in kept)
        y = TensorType(x.dtype, x.shape)
        if [d for d in order if x.shape[d] > 1] == [d for d in range(x.rank) if x.shape[d] > 1]:
            return normalize_groups(target, out(0, y), inp(0, x), Groups(rows, 0.0, EPSILON))
        turned = tuple(x.shape[d] for d in order)
        before, after = (scratch(x.dtype, *turned) for _ in range(2))
        strides, back = contiguous(x.shape), contiguous(turned)
        return (
            strided_copy(target, "mvn_gather", before, inp(0, x), 0, [strides[d] for d in order]),
            *normalize_groups(target, after, before, Groups(rows, 0.0, EPSILON)),
            strided_copy(target, "mvn_return", out(0, y), after, 0, [back[order.index(d)] for d in range(x.rank)]),
        )


@op("MeanVarianceNormalization", opsets=range(1, 9))
class MeanVarianceNormalization1(Decomposed):
    """x: [N, C, H, W]; over all axes with `across_channels` 1. `normalize_variance` 0 only subtracts the mean."""

    across_channels: int = 0
    normalize_variance: int = 1

    def expand(self, body: Expansion, x: TensorType) -> tuple[TensorType | None, ...]:
        axes = (0, 1, 2, 3) if self.across_channels else _USUAL
        if self.normalize_variance:
            return (body("MeanVarianceNormalization", x, axes=axes),)
        return (body("Sub", x, body("ReduceMean", x, body.ints(*axes), keepdims=1)),)

"""Transpose: y[c] = x[c permuted]. Source: ONNX operator Transpose."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Target, inp, out, strided_copy
from pyruntime.kernels.indexing import contiguous
from pyruntime.ops.base import LATEST, Op, op


@op("Transpose", opsets=range(1, LATEST + 1))
class Transpose(Op):
    """y.shape[d] = x.shape[perm[d]]; default: dimensions reversed. Any dtype."""

    perm: tuple[int, ...] | None = None

    def permutation(self, rank: int) -> tuple[int, ...]:
        """`perm`, or the reversal. Raises InvalidGraph where it is no permutation of the axes."""
        perm = tuple(self.axis_of(p, rank) for p in self.perm) if self.perm is not None else tuple(range(rank))[::-1]
        if sorted(perm) != list(range(rank)):
            self.fail(f"perm to be a permutation of {list(range(rank))}", list(self.perm or ()))
        return perm

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        return (x.with_shape(*(x.shape[p] for p in self.permutation(x.rank))),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (np.transpose(x, self.permutation(x.ndim)),)

    def alias(self, x: TensorType) -> int | None:
        """Moving axes of size 1 moves no bytes."""
        order = [p for p in self.permutation(x.rank) if x.shape[p] != 1]
        return 0 if order == sorted(order) else None

    def lower(self, target: Target, x: TensorType) -> tuple[Dispatch, ...]:
        (y,) = self.infer(x)
        strides = contiguous(x.shape)
        view = [strides[p] for p in self.permutation(x.rank)]
        return (strided_copy(target, "transpose", out(0, y), inp(0, x), 0, view),)

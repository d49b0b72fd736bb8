"""UnfoldTensor: windows along a dimension, y[.., w, .., k] = x[.., w · step + k, ..]. Source: com.microsoft."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Target, inp, out, strided_copy
from pyruntime.kernels.ir.indexing import contiguous
from pyruntime.ops.base import Op, Unsupported, op


@op("UnfoldTensor", opsets=range(1, 2), domain="com.microsoft")
class UnfoldTensor(Op):
    """x: any type, d elements along `dim`; y: (d - size) // step + 1 windows along it, and a last axis of `size`."""

    dim: int = -1
    size: int
    step: int = 1

    def axis(self, x: TensorType) -> int:
        """Return the unfolded dimension as a non-negative index. Raises InvalidGraph."""
        if not x.rank:
            self.fail("an input of rank 1 or more", x)
        axis = self.axis_of(self.dim, x.rank)
        if self.step < 1:
            self.fail("a step of at least 1", self.step)
        if self.size < 1 or self.size > x.shape[axis]:
            self.fail(f"a size of 1 to {x.shape[axis]}, the elements along dimension {axis}", self.size)
        return axis

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        axis = self.axis(x)
        count = (x.shape[axis] - self.size) // self.step + 1
        return (x.with_shape(*x.shape[:axis], count, *x.shape[axis + 1 :], self.size),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        axis = self.axis_of(self.dim, x.ndim)
        windows = np.lib.stride_tricks.sliding_window_view(x, self.size, axis)
        return (windows[(slice(None),) * axis + (slice(None, None, self.step),)],)

    def alias(self, x: TensorType) -> int | None:
        return 0 if self.size == self.step == 1 else None

    def lower(self, target: Target, x: TensorType) -> tuple[Dispatch, ...]:
        if x.dtype is DType.STRING:
            raise Unsupported("strings are on the host")
        axis, own = self.axis(x), contiguous(x.shape)
        strides = [*own[:axis], own[axis] * self.step, *own[axis + 1 :], own[axis]]
        return (strided_copy(target, "unfold", out(0, self.infer(x)[0]), inp(0, x), 0, strides),)

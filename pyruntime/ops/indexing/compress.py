"""Compress: select slices along an axis by a bool mask. Source: ONNX operator Compress."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.ops.base import LATEST, Op, op


@op("Compress", opsets=range(9, LATEST + 1))
class Compress(Op):
    """x: rank 1 or more, flattened without `axis`; condition: n bools; y: the slices of x where the condition is true.

    Slices from n on are dropped. ONNX requires a condition of rank 1, but onnxruntime flattens others, which
    paddle2onnx writes for masked_select.
    """

    data_dependent = True

    axis: int | None = None

    def infer(self, x: TensorType, condition: TensorType) -> tuple[TensorType, ...]:
        if condition.dtype is not DType.BOOL:
            self.fail("a condition of bool", condition)
        if x.rank == 0:
            self.fail("an input of rank 1 or more", x)
        axis = None if self.axis is None else self.axis_of(self.axis, x.rank)
        length = x.size if axis is None else x.shape[axis]
        count = int(np.count_nonzero(condition.value().reshape(-1)[:length]))
        return (x.with_shape(count) if axis is None else x.with_shape(*x.shape[:axis], count, *x.shape[axis + 1 :]),)

    def evaluate(self, x: Array, condition: Array) -> tuple[Array, ...]:
        axis = None if self.axis is None else self.axis_of(self.axis, x.ndim)
        flat = x.reshape(-1) if axis is None else x
        kept = np.flatnonzero(condition.reshape(-1)[: flat.shape[axis or 0]])
        return (np.take(flat, kept, axis=axis or 0),)

"""Unique: the different elements, or slices along an axis, of a tensor. Source: ONNX operator Unique."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, DType, TensorType, ValueType, of_element
from pyruntime.ops.base import LATEST, Op, op


@op("Unique", opsets=range(11, LATEST + 1))
class Unique(Op):
    """y: the unique slices, in lexicographic order or in that of their first occurrence; without axis x is flattened.

    Optional outputs, int64: indices [n] of first occurrences in x; inverse [slices of x], the place in y of each;
    counts [n]. NaNs are one element.
    """

    data_dependent = True

    axis: int | None = None
    sorted: int = 1

    def infer(self, x: TensorType) -> tuple[ValueType, ...]:
        values = self.evaluate(x.value())
        dtypes = (x.dtype, DType.INT64, DType.INT64, DType.INT64)
        return tuple(of_element(t, v) for t, v in zip(dtypes, values, strict=True))

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        axis = 0 if self.axis is None else self.axis_of(self.axis, x.ndim)
        table = x.reshape(-1) if self.axis is None else x
        rows = np.moveaxis(table, axis, 0)
        rows = ranks(rows).reshape(rows.shape[0], rows.size // max(rows.shape[0], 1))
        first, inverse, counts = unique_rows(rows)
        if not self.sorted:
            order = np.argsort(first).astype(np.int64)
            place = np.empty_like(order)
            place[order] = np.arange(order.size)
            first, inverse, counts = first[order], place[inverse], counts[order]
        return np.take(table, first, axis=axis), first, inverse, counts


def ranks(x: Array) -> Array:
    """Integers that are ordered and equal as x's elements are, NaNs last and equal to each other."""
    return np.unique(x, return_inverse=True)[1].reshape(x.shape)


def unique_rows(rows: Array) -> tuple[Array, Array, Array]:
    """First occurrence, inverse and count of the different rows of an integer matrix, in lexicographic order."""
    count = rows.shape[0]
    order = np.lexsort((np.arange(count), *rows.T[::-1]))
    ordered = rows[order]
    starts = np.ones(count, bool)
    starts[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    inverse = np.empty(count, np.int64)
    inverse[order] = np.cumsum(starts) - 1
    return order[starts].astype(np.int64), inverse, np.bincount(inverse, minlength=0).astype(np.int64)

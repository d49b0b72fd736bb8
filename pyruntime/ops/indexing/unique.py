"""Unique: the distinct elements, or slices along an axis, of a tensor. Source: ONNX operator Unique."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, DType, TensorType, ValueType, of_element
from pyruntime.ops.base import LATEST, Op, op


@op("Unique", opsets=range(11, LATEST + 1))
class Unique(Op):
    """y: the n distinct slices, in lexicographic order or in order of first occurrence; without axis, x is flattened.

    Optional outputs, int64: indices [n] of first occurrences in x; inverse [slices of x], the index in y of each slice;
    counts [n]. All NaNs are equal.
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
    """Return integers with the order and equality of x's elements; NaNs are last and equal."""
    return np.unique(x, return_inverse=True)[1].reshape(x.shape)


def unique_rows(rows: Array) -> tuple[Array, Array, Array]:
    """Return first occurrence, inverse and count of the distinct rows of an integer matrix, in lexicographic order."""
    count = rows.shape[0]
    order = np.lexsort((np.arange(count), *rows.T[::-1]))
    ordered = rows[order]
    starts = np.ones(count, bool)
    starts[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    inverse = np.empty(count, np.int64)
    inverse[order] = np.cumsum(starts) - 1
    return order[starts].astype(np.int64), inverse, np.bincount(inverse, minlength=0).astype(np.int64)

"""Gather from a table that is split across buffers, as `passes/layout/split_large_weights.py` creates it.

PartIndex   index within one part of the table, or the part's length for rows of other parts
PartRows    rows of one part, selected by such indices; elsewhere the rows gathered so far
"""

from __future__ import annotations

import math

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Target, Unit, elementwise, inp, move, out
from pyruntime.ops.base import Op, op
from pyruntime.ops.indexing.indices import check_indices, from_front, index_value
from pyruntime.ops.operands import optional

__all__ = ["PartIndex", "PartRows"]


@op("PartIndex", opsets=range(1, 2), domain="pyruntime")
class PartIndex(Op):
    """indices: int32 or int64, any shape; negative ones count from the end. y: int32 of the same shape.

    Attributes:
        rows: rows of the table.
        start, length: first row and number of rows of the part.
    """

    rows: int
    start: int
    length: int

    def infer(self, indices: TensorType) -> tuple[TensorType, ...]:
        check_indices(self, indices)
        return (TensorType(DType.INT32, indices.shape),)

    def evaluate(self, indices: Array) -> tuple[Array, ...]:
        local = from_front(indices, self.rows) - self.start
        return (np.where((local >= 0) & (local < self.length), local, self.length).astype(np.int32),)

    def lower(self, target: Target, indices: TensorType) -> tuple[Dispatch, ...]:
        (y,) = self.infer(indices)
        expr = "let at = i32(wrap_index(given, u32(rows))) - start; return select(length, at, at >= 0 && at < length);"
        given = f"let given = {index_value(indices.dtype, 'x')}; "
        scalars = {"rows": self.rows, "start": self.start, "length": self.length}
        return (elementwise(target, "part_index", {"x": inp(0, indices)}, out(0, y), given + expr, scalars),)


@op("PartRows", opsets=range(1, 2), domain="pyruntime")
class PartRows(Op):
    """x: [length, ...], a part of a table; indices: int32 from PartIndex; before: like y.

    y = x[indices], of shape indices.shape + x.shape[1:]. Where an index equals `length`, y is `before`, or 0 without
    it.
    """

    def infer(self, x: TensorType, indices: TensorType, before: TensorType | None = None) -> tuple[TensorType, ...]:
        y = x.with_shape(*indices.shape, *x.shape[1:])
        if before is not None and (before.dtype, before.shape) != (y.dtype, y.shape):
            self.fail(f"rows of {y}", before)
        return (y,)

    def evaluate(self, x: Array, indices: Array, before: Array | None = None) -> tuple[Array, ...]:
        inside = indices < len(x)
        rows = np.take(x, np.where(inside, indices, 0), axis=0)
        mask = inside.reshape(inside.shape + (1,) * (x.ndim - 1))
        return (np.where(mask, rows, np.zeros((), x.dtype) if before is None else before).astype(x.dtype),)

    def lower(
        self, target: Target, x: TensorType, indices: TensorType, before: TensorType | None = None
    ) -> tuple[Dispatch, ...]:
        (y,) = self.infer(x, indices, before)
        inner = math.prod(x.shape[1:])
        unit = Unit.widest(x.dtype, inner)
        held = optional(2, before)
        sources = {"x": inp(0, x), **({} if held is None else {"before": held})}
        element = f"""let pick = i / params.inner;
  let at = u32(load_indices(pick));
  if (at >= params.length) {{ return {f"{unit.load}_before(i)" if held is not None else f"{unit.value}()"}; }}
  return {unit.load}_x(at * params.inner + i - pick * params.inner);"""
        values = {"inner": inner // unit.width, "length": x.shape[0]}
        return (move(target, "part_rows", unit, out(0, y), sources, element, values, {"indices": inp(1, indices)}),)

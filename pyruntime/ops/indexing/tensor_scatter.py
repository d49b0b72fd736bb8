"""TensorScatter: write an update into a cache along its sequence axis. Source: ONNX operator TensorScatter.

present[b, ..., w[b] + t, ...] = update[b, ..., t, ...], modulo the axis length in circular mode; elsewhere past.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np

from pyruntime.ir import Array, Bound, DType, TensorType
from pyruntime.kernels import Dispatch, Target, Unit, for_each, inp, move, out
from pyruntime.ops.base import LATEST, attributes_of, op
from pyruntime.ops.caches import CacheOp, Rewritten
from pyruntime.ops.indexing.indices import index_value
from pyruntime.ops.movement.append_rows import divides_into_words


@op("TensorScatter", opsets=range(24, LATEST + 1))
class TensorScatter(CacheOp):
    """past: [B, ..., S, ...]; update: same shape with s <= S on the axis; write_indices w: int64 [B], default zeros."""

    axis: int = -2
    mode: Annotated[str, "linear", "circular"] = "linear"

    def along(self, rank: int) -> int:
        """Return the sequence axis as a non-negative index. Raises InvalidGraph for the batch axis."""
        axis = self.axis_of(self.axis, rank)
        if axis == 0:
            self.fail("an axis other than the batch axis", self.axis)
        return axis

    def infer(self, past: TensorType, update: TensorType, write: TensorType | None = None) -> tuple[TensorType, ...]:
        self.same_dtype(past, update)
        axis = self.along(past.rank)
        same = past.rank == update.rank and all(
            u == p or (d == axis and u < p) for d, (p, u) in enumerate(zip(past.shape, update.shape, strict=False))
        )
        if not same:
            self.fail(f"an update of past's shape, at most as long along axis {axis}", f"{update} for {past}")
        if write is not None and (write.dtype is not DType.INT64 or write.shape != past.shape[:1]):
            self.fail(f"write_indices of int64[{past.shape[0]}]", write)
        return (TensorType(past.dtype, past.shape),)

    def bounds(self, *inputs: Any) -> Sequence[Bound]:
        past, update, write = (*inputs, None)[:3]
        if self.mode != "linear" or write is None:
            return []
        axis = self.along(len(past.shape))
        most, reason = past.shape[axis] - update.shape[axis], "from which on past has places for the whole update"
        return [Bound(2, 0, most, "write_indices", reason, "give a shorter update or a larger cache")]

    def evaluate(self, past: Array, update: Array, write: Array | None = None) -> tuple[Array, ...]:
        self.check_bounds(past, update, write)
        axis = self.along(past.ndim)
        length, count = past.shape[axis], update.shape[axis]
        starts = np.zeros(past.shape[0], np.int64) if write is None else write
        places = starts[:, None] + np.arange(count)
        if self.mode == "circular" and length:
            places = places % length
        present = np.moveaxis(past, axis, 1).copy()
        present[np.arange(past.shape[0])[:, None], places] = np.moveaxis(update, axis, 1)
        return (np.moveaxis(present, 1, axis),)

    def alias(self, past: TensorType, update: TensorType, write: TensorType | None = None) -> int | None:
        """Return 0 (past) for an empty update."""
        return 0 if update.size == 0 else None

    def rewrites(self, past: TensorType, update: TensorType, write: TensorType | None = None) -> dict[int, Rewritten]:
        """Return {} in circular mode, which overwrites valid rows once the cache is full."""
        axis = self.along(past.rank)
        if self.mode != "linear" or write is None or not update.size or not divides_into_words(past, axis):
            return {}
        return {0: Rewritten(0, axis, (2, 0))}

    def rewrite_in_place(self, *inputs: TensorType | None) -> _RewritesInPlace:
        return _RewritesInPlace(**attributes_of(self))

    def lower(
        self, target: Target, past: TensorType, update: TensorType, write: TensorType | None = None
    ) -> tuple[Dispatch, ...]:
        axis = self.along(past.rank)
        inner = math.prod(past.shape[axis + 1 :])
        unit = Unit.widest(past.dtype, inner)
        start, wrap = "0", ""
        if write is not None:
            start = index_value(DType.INT64, "load_write(prefix / params.prefixes)")
        if write is not None and self.mode == "circular":
            start = "i64_low(i64_rem(load_write(prefix / params.prefixes), vec2<u32>(params.length, 0u)))"
            wrap = "turn = i32(positive_mod(turn, length));"
        element = f"""let row = i / params.inner;
  let prefix = row / params.length;
  let length = i32(params.length);
  var turn = i32(row - prefix * params.length) - {start};
  {wrap}
  if (turn < 0 || turn >= i32(params.count)) {{ return {unit.load}_past(i); }}
  return {unit.load}_update((prefix * params.count + u32(turn)) * params.inner + i - row * params.inner);"""
        values = {
            "inner": inner // unit.width,
            "length": past.shape[axis],
            "count": update.shape[axis],
            "prefixes": math.prod(past.shape[1:axis]),
        }
        name = "tensor_scatter" if write is None else f"tensor_scatter_{self.mode}"
        sources = {"past": inp(0, past), "update": inp(1, update)}
        others = {} if write is None else {"write": inp(2, write)}
        (y,) = self.infer(past, update, write)
        return (move(target, name, unit, out(0, y), sources, element, values, others),)


@op("TensorScatter", opsets=range(1, 2), domain="pyruntime")
class _RewritesInPlace(TensorScatter):
    """TensorScatter that writes the update into the memory of past."""

    @property
    def overwrites(self) -> dict[int, int]:
        return {0: 0}

    def lower(
        self, target: Target, past: TensorType, update: TensorType, write: TensorType | None = None
    ) -> tuple[Dispatch, ...]:
        assert write is not None
        axis = self.along(past.rank)
        inner = math.prod(past.shape[axis + 1 :])
        unit = Unit.widest(past.dtype, inner)
        values = {
            "inner": inner // unit.width,
            "length": past.shape[axis],
            "rows": update.shape[axis],
            "prefixes": math.prod(past.shape[1:axis]),
        }
        start = index_value(DType.INT64, "load_write(prefix / params.prefixes)")
        kernel = for_each(
            target,
            f"tensor_scatter_rows_{unit.bits}",
            update.size // unit.width,
            {"x": unit.view(inp(1, update)), "write": inp(2, write)},
            {"y": unit.view(out(0, past))},
            f"""let row = i / params.inner;
  let prefix = row / params.rows;
  let place = i32(row - prefix * params.rows) + {start};
  if (place < 0 || place >= i32(params.length)) {{ return; }}
  let v = {unit.load}_x(i);
  {unit.store("y", "(prefix * params.length + u32(place)) * params.inner + i - row * params.inner", "v")}""",
            values,
        )
        return (kernel,)

"""ScatterElements, ScatterND, Scatter: replace elements of a tensor by updates, or reduce them. Source: ONNX.

Several updates may have the same index. They apply in the order of the updates tensor, as in onnxruntime's CPU
provider, on the host and the GPU: without reduction the last one wins, and sums and products fold from first to last.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from pyruntime.ir import Array, Bound, DType, TensorType
from pyruntime.kernels import (
    Dispatch,
    Operand,
    Source,
    Target,
    Unit,
    fill,
    for_each,
    gather_map,
    inp,
    move,
    out,
    scratch,
)
from pyruntime.kernels.ir.indexing import collapse, contiguous, index_code, index_values
from pyruntime.ops.base import LATEST, Op, Unsupported, op
from pyruntime.ops.indexing.indices import (
    check_indices,
    from_front,
    index_at,
    index_bound,
    slot_code,
    slot_values,
    slots,
    tuple_bounds,
)

FEW = 8
"""Up to this many updates, every output element checks all of them: one dispatch without scratch memory."""

_UFUNC = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
_COMBINE = {
    "f32": {"add": "a + b", "mul": "a * b", "max": "nan_max(a, b)", "min": "nan_min(a, b)"},
    "bool": {"add": "a || b", "mul": "a && b", "max": "a || b", "min": "a && b"},
    "vec2<u32>": {
        "add": "i64_add(a, b)",
        "mul": "i64_mul(a, b)",
        "max": "select(a, b, {less}(a, b))",
        "min": "select(a, b, {less}(b, a))",
    },
}
_INTEGER = {"add": "a + b", "mul": "a * b", "max": "max(a, b)", "min": "min(a, b)"}


@dataclass(frozen=True, slots=True)
class _Places:
    """Target positions of updates, for kernels.

    The data is `slots` slices of `inner` elements. Update u of `count` goes to slice `slot_of(u)`, a WGSL function with
    body `code`. Only updates u, u + step, ... (`run` of them) may share a slice, so blocks of run * step consecutive
    updates have disjoint slices.
    """

    name: str
    code: str
    values: dict[str, int | list[int]]
    count: int
    slots: int
    inner: int
    step: int
    run: int

    def for_each(
        self, target: Target, name: str, indices: Operand, writes: dict[str, Operand], statements: str
    ) -> Dispatch:
        """Return a dispatch that runs `statements` for every update index `i`."""
        name, read = f"{name}_{self.name}", {"indices": indices}
        return for_each(target, name, self.count, read, writes, statements, self.values, self.function)

    @property
    def function(self) -> str:
        """The WGSL function `slot_of`, which reads the binding `indices`."""
        return f"fn slot_of(u: u32) -> u32 {{\n  {self.code}\n}}"


class _Scatter(Op):
    """Base of scatter operators: checks and dispatches."""

    reduction: Annotated[str, "none", "add", "mul", "max", "min"] = "none"

    def alias(self, data: TensorType, indices: TensorType, updates: TensorType) -> int | None:
        """Return 0 (the data) if there are no updates."""
        return 0 if updates.size == 0 else None

    def check(self, data: TensorType, indices: TensorType, updates: TensorType) -> None:
        """Raise InvalidGraph where the types do not go together."""
        self.same_dtype(data, updates)
        check_indices(self, indices)

    def apply(self, data: Array, where: Array, updates: Array) -> Array:
        """Apply `updates` [count, ...] in order to slots `where` of `data` [slots, ...]."""
        if self.reduction == "none":
            result = data.copy()
            result[where] = updates
            return result
        wide = np.float32 if data.dtype == np.float16 else data.dtype
        total = data.astype(wide)
        _UFUNC[self.reduction].at(total, where, updates.astype(wide))
        return total.astype(data.dtype)

    def dispatches(
        self, target: Target, data: TensorType, indices: TensorType, updates: TensorType, places: _Places
    ) -> tuple[Dispatch, ...]:
        """Return dispatches that find the updates of each slice, then compute each output element."""
        if not data.size:
            return ()
        reduction = self.reduction
        tensors = {"x": inp(0, data), "updates": inp(2, updates)}
        y = out(0, TensorType(data.dtype, data.shape))
        if reduction != "none" and data.dtype is DType.DOUBLE:
            raise Unsupported("float64 is exact on the host")
        if places.count <= FEW:
            return (_look_at_all(target, reduction, y, tensors, inp(1, indices), places),)
        if reduction == "none":
            return _replace(target, y, tensors, inp(1, indices), places)
        return _reduce(target, reduction, y, tensors, inp(1, indices), places)


def _look_at_all(
    target: Target, reduction: str, y: Operand, tensors: dict[str, Operand], indices: Operand, places: _Places
) -> Dispatch:
    """Return one dispatch in which every output element loops over all updates."""
    replaces = reduction == "none"
    unit = Unit.widest(y.type.dtype, places.inner) if replaces else Unit(1, y.type.dtype.bits)
    load = f"{unit.load}_updates(u * params.inner + i - slot * params.inner)"
    element = f"""let slot = i / params.inner;
  var made = {unit.load}_x(i);
  for (var u = 0u; u < params.count; u++) {{
    if (slot_of(u) == slot) {{ made = {load if replaces else f"combine(made, {load})"}; }}
  }}
  return made;"""
    name = f"scatter_few_{reduction}_{places.name}"
    values = {"inner": places.inner // unit.width, "count": places.count, **places.values}
    if replaces:
        others = {"indices": indices}
        return move(target, name, unit, y, tensors, element, values, others, places.function)
    sources = [Source(n, o) for n, o in {**tensors, "indices": indices}.items()]
    helpers = f"{places.function}\n\n{_combine(reduction, y.type.dtype)}"
    return gather_map(target, name, y, sources, element, values, helpers)


def _replace(
    target: Target, y: Operand, tensors: dict[str, Operand], indices: Operand, places: _Places
) -> tuple[Dispatch, ...]:
    """Return dispatches that find the last update of each slice, then copy it or x.

    `marks[s]` is 1 + the index of the last update of slice s, 0 if there is none.
    """
    marks = scratch(DType.UINT32, places.slots)
    mark = "atomicMax(&marks[slot_of(i)], i + 1u);"
    unit = Unit.widest(y.type.dtype, places.inner)
    element = f"""let slot = i / params.inner;
  let last = load_marks(slot);
  if (last == 0u) {{ return {unit.load}_x(i); }}
  return {unit.load}_updates((last - 1u) * params.inner + i - slot * params.inner);"""
    values = {"inner": places.inner // unit.width}
    return (
        fill(target, "clear", marks, bytes(16)),
        places.for_each(target, "mark_last", indices, {"marks": marks}, mark),
        move(target, "scatter", unit, y, tensors, element, values, {"marks": marks}),
    )


def _reduce(
    target: Target, reduction: str, y: Operand, tensors: dict[str, Operand], indices: Operand, places: _Places
) -> tuple[Dispatch, ...]:
    """Return dispatches that list the updates of each slice in ascending order, then fold them into x.

    `order` holds these lists. `cells[2s]` is the number of updates of slice s, and `cells[2s + 1]` the end of its list
    after placement.
    """
    cells = scratch(DType.UINT32, 2 * places.slots + 1)
    homes, order = (scratch(DType.UINT32, places.count) for _ in range(2))
    count = """let slot = slot_of(i);
  store_homes(i, slot);
  atomicAdd(&cells[2u * slot], 1u);"""
    reserve = """let count = atomicLoad(&cells[2u * i]);
  if (count > 0u) { atomicStore(&cells[2u * i + 1u], atomicAdd(&cells[2u * params.count], count)); }"""
    place = "store_order(atomicAdd(&cells[2u * load_homes(i) + 1u], 1u), i);"
    listed = {"cells": cells, "order": order}
    made = [
        fill(target, "clear", cells, bytes(16)),
        places.for_each(target, "count_updates", indices, {"homes": homes, "cells": cells}, count),
        for_each(target, "reserve_lists", places.slots, {}, {"cells": cells}, reserve),
        for_each(target, "place_updates", places.count, {"homes": homes}, listed, place),
    ]
    if y.type.dtype.is_float:  # order affects rounding of sums, and which zero or NaN a maximum returns
        made.append(_sort(target, cells, homes, order, places))
    element = """let slot = i / params.inner;
  var total = load_x(i);
  if (i >= params.size) { return total; }
  let end = load_cells(2u * slot + 1u);
  for (var k = end - load_cells(2u * slot); k < end; k++) {
    total = combine(total, load_updates(load_order(k) * params.inner + i - slot * params.inner));
  }
  return total;"""
    sources = [Source(n, o) for n, o in {**tensors, **listed}.items()]
    values = {"inner": places.inner}
    helpers = _combine(reduction, y.type.dtype)
    made.append(gather_map(target, f"scatter_{reduction}", y, sources, element, values, helpers))
    return tuple(made)


def _sort(target: Target, cells: Operand, homes: Operand, order: Operand, places: _Places) -> Dispatch:
    """Sort each slice's list of updates, since the order of atomic operations is undefined.

    Uses Shell sort. Where a slice has a large part of its possible updates, scanning these and rewriting the list is
    cheaper.
    """
    statements = """let count = load_cells(2u * i);
  if (count < 2u) { return; }
  let begin = load_cells(2u * i + 1u) - count;
  if (params.run / (4u + 2u * firstLeadingBit(count)) <= count) {
    let some = load_order(begin);
    let block = params.run * params.step;
    let first = some / block * block + some % params.step;
    var into = begin;
    for (var k = 0u; k < params.run; k++) {
      let u = first + k * params.step;
      if (load_homes(u) == i) {
        store_order(into, u);
        into++;
      }
    }
    return;
  }
  var gap = 1u;
  while (gap < count / 3u) { gap = 3u * gap + 1u; }
  for (; gap > 0u; gap /= 3u) {
    for (var k = gap; k < count; k++) {
      let u = load_order(begin + k);
      var into = k;
      while (into >= gap) {
        let other = load_order(begin + into - gap);
        if (other < u) { break; }
        store_order(begin + into, other);
        into -= gap;
      }
      store_order(begin + into, u);
    }
  }"""
    reads, writes = {"cells": cells, "homes": homes}, {"order": order}
    values = {"run": places.run, "step": places.step}
    return for_each(target, "sort_updates", places.slots, reads, writes, statements, values)


def _combine(reduction: str, dtype: DType) -> str:
    """Return the WGSL function that folds an update into an element."""
    expr = _COMBINE.get(dtype.compute, _INTEGER)[reduction]
    expr = expr.format(less="i64_lt" if dtype.is_signed else "u64_lt")
    kind = dtype.compute
    return f"fn combine(a: {kind}, b: {kind}) -> {kind} {{ return {expr}; }}"


class _ScatterElements(_Scatter):
    """y[c with the axis's coordinate replaced by indices[c]] = updates[c].

    data: rank 1 or more; indices: int32 or int64; updates: same shape as indices.
    """

    axis: int

    def along(self, rank: int) -> int:
        """Return the axis as a non-negative index."""
        return self.axis_of(self.axis, rank)

    def infer(self, data: TensorType, indices: TensorType, updates: TensorType) -> tuple[TensorType, ...]:
        self.check(data, indices, updates)
        axis = self.along(data.rank)
        if data.rank == 0 or data.rank != indices.rank or indices.shape != updates.shape:
            self.fail("indices and updates of one shape and data's rank, at least 1", f"{indices}, {updates}, {data}")
        if any(i > d for k, (i, d) in enumerate(zip(indices.shape, data.shape, strict=True)) if k != axis):
            self.fail(f"indices no longer than the data except along axis {axis}", f"{indices} for {data}")
        return (TensorType(data.dtype, data.shape),)

    def bounds(self, *inputs: Any) -> Sequence[Bound]:
        shape = inputs[0].shape
        axis = self.along(len(shape))
        return [index_bound(shape[axis], axis)]

    def evaluate(self, data: Array, indices: Array, updates: Array) -> tuple[Array, ...]:
        self.check_bounds(data, indices, updates)
        axis = self.along(data.ndim)
        where = from_front(indices, data.shape[axis]) * contiguous(data.shape)[axis]
        for k, (dim, step) in enumerate(zip(indices.shape, contiguous(data.shape), strict=True)):
            if k != axis:
                where = where + (np.arange(dim) * step).reshape(-1, *[1] * (data.ndim - 1 - k))
        return (self.apply(data.reshape(-1), where.reshape(-1), updates.reshape(-1)).reshape(data.shape),)

    def lower(self, target: Target, data: TensorType, indices: TensorType, updates: TensorType) -> tuple[Dispatch, ...]:
        axis, own = self.along(data.rank), contiguous(data.shape)
        dims, (view,) = collapse(indices.shape, [0 if k == axis else step for k, step in enumerate(own)])
        rank = len(dims)
        pick = index_at(indices.dtype, "load_indices(u)", "params.length")
        places = _Places(
            f"elements_r{rank}_{indices.dtype.onnx_name}",
            f"{index_code(rank, ['y'], 'u')}\n  return at_y + {pick} * params.stride;",
            {"length": data.shape[axis], "stride": own[axis], **index_values(dims, {"y": (0, view)})},
            count=indices.size,
            slots=data.size,
            inner=1,
            step=math.prod(indices.shape[axis + 1 :]),
            run=indices.shape[axis],
        )
        return self.dispatches(target, data, indices, updates, places)


@op("ScatterElements", opsets=range(16, LATEST + 1), earlier={range(11, 16): "reduction"})
class ScatterElements(_ScatterElements):
    """ScatterElements with an optional reduction."""

    axis: int = 0
    reduction: Annotated[str, "none", "add", "mul", "max", "min"] = "none"


@op("Scatter", opsets=range(9, 11))
class Scatter(_ScatterElements):
    """Former name of ScatterElements."""

    axis: int = 0


@op("ScatterND", opsets=range(16, LATEST + 1), earlier={range(11, 16): "reduction"})
class ScatterND(_Scatter):
    """y[indices[i]] = updates[i], which are slices where k < r.

    data: rank r; indices: int64 [..., k], k <= r; updates: indices.shape[:-1] + data.shape[k:].
    """

    reduction: Annotated[str, "none", "add", "mul", "max", "min"] = "none"

    def infer(self, data: TensorType, indices: TensorType, updates: TensorType) -> tuple[TensorType, ...]:
        self.check(data, indices, updates)
        if data.rank == 0 or indices.rank == 0 or indices.shape[-1] > data.rank:
            self.fail("data and indices of rank 1 or more, index tuples no longer than data's", f"{indices}, {data}")
        expected = indices.shape[:-1] + data.shape[indices.shape[-1] :]
        if updates.shape != expected:
            self.fail(f"updates of shape {list(expected)}", updates)
        return (TensorType(data.dtype, data.shape),)

    def bounds(self, *inputs: Any) -> Sequence[Bound]:
        data, indices = inputs[:2]
        k = indices.shape[-1]
        return tuple_bounds(k, data.shape[:k])

    def evaluate(self, data: Array, indices: Array, updates: Array) -> tuple[Array, ...]:
        self.check_bounds(data, indices, updates)
        k = indices.shape[-1]
        where, rest = slots(indices, data.shape[:k]).reshape(-1), data.shape[k:]
        flat = data.reshape(math.prod(data.shape[:k]), *rest)
        return (self.apply(flat, where, updates.reshape(where.size, *rest)).reshape(data.shape),)

    def lower(self, target: Target, data: TensorType, indices: TensorType, updates: TensorType) -> tuple[Dispatch, ...]:
        k = indices.shape[-1]
        places = _Places(
            f"nd{k}_{indices.dtype.onnx_name}",
            f"{slot_code(indices.dtype, k, 'u')}\n  return slot;",
            slot_values(data.shape[:k]),
            count=math.prod(indices.shape[:-1]),
            slots=math.prod(data.shape[:k]),
            inner=math.prod(data.shape[k:]),
            step=1,
            run=math.prod(indices.shape[:-1]),
        )
        return self.dispatches(target, data, indices, updates, places)

"""TopK: the k largest or smallest elements along an axis, and their indices. Source: ONNX operator TopK.

Ties are ordered by index. NaN is larger than everything. Results are sorted even if `sorted` is 0.
"""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Operand, Source, Target, bits_type, gather_map, inp, out
from pyruntime.kernels.rows.rows import rows_of
from pyruntime.kernels.rows.topk import sorted_indices
from pyruntime.ops.base import LATEST, Op, op, refuse_float64
from pyruntime.ops.by_attribute import ByAttribute

_PLACE = """
  let inner = i % params.inner;
  let j = (i / params.inner) % params.k;
  let outer = i / (params.inner * params.k);
  let index = load_index((outer * params.inner + inner) * params.width + j);
"""


@op("TopK", opsets=range(11, LATEST + 1), earlier={range(10, 11): "largest sorted"})
class TopK(Op):
    """k: one int64, an input. `largest` selects the largest or the smallest elements."""

    axis: int = -1
    largest: int = 1
    sorted: int = 1

    def count(self, k: TensorType) -> int:
        """Return the value of k."""
        if k.size != 1:
            self.fail("one k", k)
        return k.ints()[0]

    def infer(self, x: TensorType, k: TensorType) -> tuple[TensorType, ...]:
        axis = self.axis_of(self.axis, x.rank)
        count = self.count(k)
        length = x.shape[axis] if x.rank else 1
        if not 0 <= count <= length:
            self.fail(f"k in [0, {length}], the size of the axis", count)
        shape = tuple(count if d == axis else n for d, n in enumerate(x.shape))
        return TensorType(x.dtype, shape), TensorType(DType.INT64, shape)

    def evaluate(self, x: Array, k: Array) -> tuple[Array, ...]:
        count = self.count(TensorType(DType.INT64, k.shape, lambda: k))
        if not x.ndim:
            return x, np.zeros((), np.int64)
        axis = self.axis_of(self.axis, x.ndim)
        if self.largest:
            # Ascending order of the reversed row, reversed: descending, and equal elements keep their order.
            order = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
            order = x.shape[axis] - 1 - np.flip(order, axis)
        else:
            order = np.argsort(x, axis=axis, kind="stable")
        indices = np.take(order, np.arange(count), axis=axis)
        return np.take_along_axis(x, indices, axis), indices.astype(np.int64)

    def lower(self, target: Target, x: TensorType, k: TensorType) -> tuple[Dispatch, ...]:
        refuse_float64(x)
        values, indices = self.infer(x, k)
        if not values.size:
            return ()
        rows = rows_of(x.shape, self.axis_of(self.axis, x.rank))
        count = self.count(k)
        made, order, width = sorted_indices(target, inp(0, x), rows, count, bool(self.largest))
        uniforms = {"inner": max(1, rows.inner), "k": count, "length": rows.length, "width": width}
        source = Source("index", order)
        if self.wants(0):
            # Elements are only copied, so all types of the same width share a kernel.
            bits = bits_type(x.dtype)
            y = Operand(out(0, values).role, 0, TensorType(bits, values.shape))
            data = Source("x", Operand(inp(0, x).role, 0, TensorType(bits, x.shape)))
            take = f"{_PLACE}  return load_x((outer * params.length + index) * params.inner + inner);"
            made.append(gather_map(target, "topk_values", y, [source, data], take, uniforms))
        if self.wants(1):
            tell = f"{_PLACE}  return vec2<u32>(index, 0u);"
            made.append(gather_map(target, "topk_indices", out(1, indices), [source], tell, uniforms))
        return tuple(made)


@op("TopK", opsets=range(1, 10))
class TopK1(ByAttribute):
    """k is an attribute; returns the largest elements."""

    later, moved = TopK, ("k",)

    axis: int = -1
    k: int

"""GatherND: y[b, i] = x[b, indices[b, i, 0], ..., indices[b, i, k-1]]. Source: ONNX operator GatherND."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pyruntime.ir import Array, Bound, TensorType
from pyruntime.kernels import Dispatch, Target, Unit, inp, move, out
from pyruntime.ops.base import LATEST, Op, Unsupported, op
from pyruntime.ops.indexing.indices import check_indices, check_reachable, slot_code, slot_values, slots, tuple_bounds


@op("GatherND", opsets=range(12, LATEST + 1), earlier={range(11, 12): "batch_dims"})
class GatherND(Op):
    """x: rank 1 or more; indices: int64 [batches..., picks..., k]; y: [batches..., picks..., rest of x].

    batch_dims: number of leading dimensions that x and indices share.
    """

    batch_dims: int = 0

    def infer(self, x: TensorType, indices: TensorType) -> tuple[TensorType, ...]:
        check_indices(self, indices)
        b = self.batch_dims
        if not 0 <= b < max(min(x.rank, indices.rank), 1) or x.rank == 0 or indices.rank == 0:
            self.fail("data and indices of rank 1 or more, with fewer batch dimensions", f"{x}, {indices}, {b}")
        if x.shape[:b] != indices.shape[:b]:
            self.fail(f"data and indices with the same {b} batch dimensions", f"{x} and {indices}")
        k = indices.shape[-1]
        if k > x.rank - b:
            self.fail(f"index tuples of at most {x.rank - b} numbers", k)
        return (x.with_shape(*indices.shape[:-1], *x.shape[b + k :]),)

    def bounds(self, *inputs: Any) -> Sequence[Bound]:
        x, indices = inputs
        b, k = self.batch_dims, indices.shape[-1]
        return tuple_bounds(k, x.shape[b : b + k], b)

    def evaluate(self, x: Array, indices: Array) -> tuple[Array, ...]:
        self.check_bounds(x, indices)
        b, k = self.batch_dims, indices.shape[-1]
        count, each = math.prod(x.shape[:b]), math.prod(indices.shape[b:-1])
        indexed, rest = x.shape[b : b + k], x.shape[b + k :]
        where = slots(indices.reshape(count, each, k), indexed)
        picked = x.reshape(count, math.prod(indexed), *rest)[np.arange(count)[:, None], where]
        return (picked.reshape(indices.shape[:-1] + rest),)

    def lower(self, target: Target, x: TensorType, indices: TensorType) -> tuple[Dispatch, ...]:
        (y,) = self.infer(x, indices)
        b, k = self.batch_dims, indices.shape[-1]
        if not k:
            raise Unsupported("indices without components repeat x on the host")
        indexed, inner = x.shape[b : b + k], math.prod(x.shape[b + k :])
        check_reachable(math.prod(indexed), y)
        unit = Unit.widest(x.dtype, inner)
        element = f"""let pick = i / params.inner;
  {slot_code(indices.dtype, k, "pick")}
  slot += pick / params.picks * params.slots;
  return {unit.load}_x(slot * params.inner + i - pick * params.inner);"""
        values = {
            **slot_values(indexed),
            "inner": inner // unit.width,
            "picks": math.prod(indices.shape[b:-1]),
            "slots": math.prod(indexed),
        }
        name = f"gather_nd{k}_{indices.dtype.onnx_name}"
        others = {"indices": inp(1, indices)}
        return (move(target, name, unit, out(0, y), {"x": inp(0, x)}, element, values, others),)

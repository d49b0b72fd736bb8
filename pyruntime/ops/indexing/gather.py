"""Gather: y[..., i, ...] = x[..., indices[i], ...] along an axis. Source: ONNX operator Gather."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pyruntime.ir import Array, Bound, TensorType
from pyruntime.kernels import Dispatch, Target, Unit, inp, move, out
from pyruntime.ops.base import LATEST, Op, op
from pyruntime.ops.indexing.indices import check_indices, check_reachable, from_front, index_at, index_bound


@op("Gather", opsets=range(1, LATEST + 1))
class Gather(Op):
    """x: rank 1 or more; indices: int32 or int64, any shape, in [-s, s - 1] for an axis of s elements.

    y.shape is x.shape with the axis replaced by indices.shape.
    """

    axis: int = 0

    def infer(self, x: TensorType, indices: TensorType) -> tuple[TensorType, ...]:
        check_indices(self, indices)
        if x.rank == 0:
            self.fail("data of rank 1 or more", x)
        axis = self.axis_of(self.axis, x.rank)
        return (x.with_shape(*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]),)

    def bounds(self, *inputs: Any) -> Sequence[Bound]:
        shape = inputs[0].shape
        axis = self.axis_of(self.axis, len(shape))
        return [index_bound(shape[axis], axis)]

    def evaluate(self, x: Array, indices: Array) -> tuple[Array, ...]:
        self.check_bounds(x, indices)
        axis = self.axis_of(self.axis, x.ndim)
        return (np.asarray(np.take(x, from_front(indices, x.shape[axis]), axis=axis), x.dtype),)

    def lower(self, target: Target, x: TensorType, indices: TensorType) -> tuple[Dispatch, ...]:
        (y,) = self.infer(x, indices)
        axis = self.axis_of(self.axis, x.rank)
        check_reachable(x.shape[axis], y)
        inner = math.prod(x.shape[axis + 1 :])
        unit = Unit.widest(x.dtype, inner)
        pick = index_at(indices.dtype, "load_indices(pick - outer * params.picks)", "params.length")
        element = f"""let pick = i / params.inner;
  let outer = pick / params.picks;
  let at = outer * params.length + {pick};
  return {unit.load}_x(at * params.inner + i - pick * params.inner);"""
        values = {"inner": inner // unit.width, "picks": indices.size, "length": x.shape[axis]}
        name = f"gather_{indices.dtype.onnx_name}"
        others = {"indices": inp(1, indices)}
        return (move(target, name, unit, out(0, y), {"x": inp(0, x)}, element, values, others),)

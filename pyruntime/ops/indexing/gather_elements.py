"""GatherElements: y[c] = x[c with the axis's coordinate replaced by indices[c]]. Source: ONNX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pyruntime.ir import Array, Bound, TensorType
from pyruntime.kernels import Dispatch, Target, Unit, inp, move, out
from pyruntime.kernels.ir.indexing import collapse, contiguous, index_code, index_values
from pyruntime.ops.base import LATEST, Op, op
from pyruntime.ops.indexing.indices import check_indices, check_reachable, from_front, index_at, index_bound


@op("GatherElements", opsets=range(11, LATEST + 1))
class GatherElements(Op):
    """x: rank 1 or more; indices: int32 or int64, no longer than x except along the axis. y.shape = indices.shape."""

    axis: int = 0

    def infer(self, x: TensorType, indices: TensorType) -> tuple[TensorType, ...]:
        check_indices(self, indices)
        axis = self.axis_of(self.axis, x.rank)
        if x.rank == 0 or x.rank != indices.rank:
            self.fail("data and indices of one rank, at least 1", f"{x} and {indices}")
        if any(i > d for k, (i, d) in enumerate(zip(indices.shape, x.shape, strict=True)) if k != axis):
            self.fail(f"indices no longer than the data except along axis {axis}", f"{indices} for {x}")
        return (x.with_shape(*indices.shape),)

    def bounds(self, *inputs: Any) -> Sequence[Bound]:
        shape = inputs[0].shape
        axis = self.axis_of(self.axis, len(shape))
        return [index_bound(shape[axis], axis)]

    def evaluate(self, x: Array, indices: Array) -> tuple[Array, ...]:
        self.check_bounds(x, indices)
        axis = self.axis_of(self.axis, x.ndim)
        reached = tuple(slice(None) if k == axis else slice(dim) for k, dim in enumerate(indices.shape))
        return (np.take_along_axis(x[reached], from_front(indices, x.shape[axis]), axis),)

    def lower(self, target: Target, x: TensorType, indices: TensorType) -> tuple[Dispatch, ...]:
        (y,) = self.infer(x, indices)
        axis = self.axis_of(self.axis, x.rank)
        check_reachable(x.shape[axis], y)
        own = contiguous(x.shape)
        dims, (view,) = collapse(y.shape, [0 if k == axis else stride for k, stride in enumerate(own)])
        rank = len(dims)
        pick = index_at(indices.dtype, "load_indices(i)", "params.length")
        element = f"{index_code(rank, ['x'])}\n  return load_x(at_x + {pick} * params.stride);"
        values = {"length": x.shape[axis], "stride": own[axis], **index_values(dims, {"x": (0, view)})}
        name = f"gather_elements_r{rank}_{indices.dtype.onnx_name}"
        unit, others = Unit(1, x.dtype.bits), {"indices": inp(1, indices)}
        return (move(target, name, unit, out(0, y), {"x": inp(0, x)}, element, values, others),)

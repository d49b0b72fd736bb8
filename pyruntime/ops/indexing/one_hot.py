"""OneHot: y[..., d, ...] = values[1] where d = indices[...], else values[0]. Source: ONNX operator OneHot."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pyruntime.ir import Array, TensorType, is_dim
from pyruntime.kernels import Dispatch, Target, Unit, inp, move, out
from pyruntime.ops.base import LATEST, Op, op, refuse_float64
from pyruntime.ops.indexing.indices import index_value


@op("OneHot", opsets=range(9, LATEST + 1))
class OneHot(Op):
    """indices: any real type and shape; depth: one number; values: [off, on], of y's type.

    The new dimension, of size depth, is axis `axis` of the output. Negative indices count from depth; for indices
    outside [-depth, depth - 1] all elements are off. Non-integral indices and depth are truncated.
    """

    axis: int = -1

    def depth(self, value: Array) -> Any:
        """Return the size of the new dimension, an int or a Dim. Raises InvalidGraph unless it is a number from 0."""
        numbers = value.reshape(-1).tolist()
        if len(numbers) != 1 or not (is_dim(numbers[0]) or math.isfinite(numbers[0])) or numbers[0] < 0:
            self.fail("a depth of one number, at least 0", numbers)
        return numbers[0] if is_dim(numbers[0]) else int(numbers[0])

    def infer(self, indices: TensorType, depth: TensorType, values: TensorType) -> tuple[TensorType, ...]:
        if values.shape != (2,):
            self.fail("values [off, on]", values)
        axis = self.axis_of(self.axis, indices.rank + 1)
        return (values.with_shape(*indices.shape[:axis], self.depth(depth.value()), *indices.shape[axis:]),)

    def evaluate(self, indices: Array, depth: Array, values: Array) -> tuple[Array, ...]:
        size, axis = self.depth(depth), self.axis_of(self.axis, indices.ndim + 1)
        if indices.dtype.kind == "f":
            picks = np.trunc(indices).astype(np.float64)
        elif indices.dtype == np.uint64:
            picks = np.minimum(indices, np.uint64(size)).astype(np.int64)
        else:
            picks = indices.astype(np.int64)
        picks = np.expand_dims(np.where(picks < 0, picks + size, picks), axis)
        places = np.arange(size).reshape(-1, *[1] * (indices.ndim - axis))
        return (np.where(picks == places, values[1:], values[:1]),)

    def lower(self, target: Target, indices: TensorType, depth: TensorType, values: TensorType) -> tuple[Dispatch, ...]:
        (y,) = self.infer(indices, depth, values)
        refuse_float64(indices)
        axis = self.axis_of(self.axis, y.rank)
        load = "load_indices(outer * params.inner + i - row * params.inner)"
        element = f"""let row = i / params.inner;
  let outer = row / params.depth;
  let place = i32(row - outer * params.depth);
  let pick = {index_value(indices.dtype, load)};
  let on = pick == place || pick + i32(params.depth) == place;
  return load_values(u32(on));"""
        unit = Unit(1, y.dtype.bits)
        sizes = {"inner": math.prod(indices.shape[axis:]), "depth": y.shape[axis]}
        name = f"one_hot_{indices.dtype.onnx_name}"
        sources, others = {"values": inp(2, values)}, {"indices": inp(0, indices)}
        return (move(target, name, unit, out(0, y), sources, element, sizes, others),)

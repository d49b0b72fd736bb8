"""Hardmax: 1 at the first maximum along an axis, 0 elsewhere. Source: ONNX operator Hardmax."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import TensorType
from pyruntime.ops.base import LATEST, attributes, op
from pyruntime.ops.decomposed import Decomposed, Expansion


@attributes
class _Hardmax(Decomposed):
    """OneHot of ArgMax. From opset 13 on along one axis, before over all dimensions from `axis` on."""

    axis: int = -1

    def expand(self, body: Expansion, x: TensorType) -> tuple[TensorType | None, ...]:
        axis = self.axis_of(self.axis, x.rank)
        self.floating(x)
        if not x.size:
            return (body("Identity", x),)
        values = body.constant(np.array([0, 1], x.dtype.numpy), x.dtype)
        flat = x.rank == 0 or (self.opsets.stop <= 13 and axis < x.rank - 1)
        rows, along = (body("Flatten", x, axis=axis), 1) if flat else (x, axis)
        best = body("ArgMax", rows, axis=along, keepdims=0)
        y = body("OneHot", best, body.ints(rows.shape[along]), values, axis=along)
        return (body("Reshape", y, body.ints(*x.shape)) if flat else y,)


@op("Hardmax", opsets=range(13, LATEST + 1))
class Hardmax(_Hardmax):
    """Hardmax along one axis."""


@op("Hardmax", opsets=range(1, 13))
class HardmaxFlattened(_Hardmax):
    """Hardmax over all dimensions from `axis` on, flattened."""

    axis: int = 1

"""Expand: broadcast x to a shape. Source: ONNX operator Expand."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Target, inp, out, strided_copy
from pyruntime.kernels.ir.indexing import broadcast_shapes, broadcast_strides
from pyruntime.ops.base import LATEST, Op, op


@op("Expand", opsets=range(8, LATEST + 1))
class Expand(Op):
    """x: any shape; shape: int64, read flat. Broadcasting is bidirectional: y.shape = broadcast(x.shape, shape)."""

    def expanded(self, x: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the output shape. Raises InvalidGraph if the shapes do not broadcast."""
        if any(d < 0 for d in shape):
            self.fail("dimensions of at least 0", list(shape))
        try:
            return broadcast_shapes(x, shape)
        except ValueError:
            self.fail(f"a shape that {list(x)} broadcasts with", list(shape))

    def infer(self, x: TensorType, shape: TensorType) -> tuple[TensorType, ...]:
        return (x.with_shape(*self.expanded(x.shape, shape.ints())),)

    def evaluate(self, x: Array, shape: Array) -> tuple[Array, ...]:
        return (np.broadcast_to(x, self.expanded(x.shape, tuple(shape.reshape(-1).tolist()))),)

    def alias(self, x: TensorType, shape: TensorType) -> int | None:
        """Return 0 where only leading dimensions of size 1 are added."""
        return 0 if self.infer(x, shape)[0].size == x.size else None

    def lower(self, target: Target, x: TensorType, shape: TensorType) -> tuple[Dispatch, ...]:
        (y,) = self.infer(x, shape)
        return (strided_copy(target, "expand", out(0, y), inp(0, x), 0, broadcast_strides(x.shape, y.shape)),)

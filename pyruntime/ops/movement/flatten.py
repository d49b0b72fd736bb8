"""Flatten: reshape x to a matrix [product of dimensions before axis, product of the rest]. Source: ONNX."""

from __future__ import annotations

import math

from pyruntime.ir import Array, TensorType
from pyruntime.ops.base import LATEST, Op, op


@op("Flatten", opsets=range(1, LATEST + 1))
class Flatten(Op):
    """x: any shape of rank r; axis in [-r, r]."""

    axis: int = 1

    def matrix(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Return the output shape. Raises InvalidGraph if the axis is outside [-r, r]."""
        rank = len(shape)
        if not -rank <= self.axis <= rank:
            self.fail(f"an axis in [{-rank}, {rank}]", self.axis)
        axis = self.axis + rank if self.axis < 0 else self.axis
        return math.prod(shape[:axis]), math.prod(shape[axis:])

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        return (x.with_shape(*self.matrix(x.shape)),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (x.reshape(self.matrix(x.shape)),)

    def alias(self, x: TensorType) -> int | None:
        return 0

"""StringConcat: z = x + y of strings, elementwise. Source: ONNX operator StringConcat."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels.ir.indexing import broadcast_shapes
from pyruntime.ops.base import LATEST, Op, op


@op("StringConcat", opsets=range(20, LATEST + 1))
class StringConcat(Op):
    """x, y: string tensors, with NumPy's broadcasting."""

    def infer(self, x: TensorType, y: TensorType) -> tuple[TensorType, ...]:
        if x.dtype is not DType.STRING or y.dtype is not DType.STRING:
            self.fail("two string tensors", f"{x} and {y}")
        try:
            return (TensorType(DType.STRING, broadcast_shapes(x.shape, y.shape)),)
        except ValueError as error:
            self.fail("shapes that broadcast", error)

    def evaluate(self, x: Array, y: Array) -> tuple[Array, ...]:
        return (np.asarray(x + y, object),)

"""NonZero: coordinates of the nonzero elements, [rank, count], in row-major order. Source: ONNX operator NonZero."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, DType, TensorType, ValueType, of_element
from pyruntime.ops.base import LATEST, Op, op


@op("NonZero", opsets=range(9, LATEST + 1))
class NonZero(Op):
    """x: any shape; y: int64. A scalar is treated as [1], as in onnxruntime."""

    data_dependent = True

    def infer(self, x: TensorType) -> tuple[ValueType, ...]:
        (y,) = self.evaluate(x.value())
        return (of_element(DType.INT64, y),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (np.stack(np.nonzero(np.atleast_1d(x))).astype(np.int64),)

"""Inverse: y[.., :, :] = x[.., :, :]⁻¹. Source: com.microsoft.Inverse."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, TensorType
from pyruntime.ops.base import Op, op


@op("Inverse", opsets=range(1, 2), domain="com.microsoft")
class Inverse(Op):
    """x: [.., n, n], floats; computed in float64 on the host. A singular matrix gives infinities."""

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        if x.rank < 2 or x.shape[-1] != x.shape[-2] or not x.dtype.is_float:
            self.fail("square matrices of floats", x)
        return (TensorType(x.dtype, x.shape),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        matrices = x.astype(np.float64).reshape(-1, *x.shape[-2:])
        inverses = np.empty_like(matrices)
        for number, matrix in enumerate(matrices):
            try:
                inverses[number] = np.linalg.inv(matrix)
            except np.linalg.LinAlgError:
                inverses[number] = np.inf
        return (inverses.reshape(x.shape).astype(x.dtype),)

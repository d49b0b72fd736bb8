"""Det: determinants of square matrices. Source: ONNX operator Det."""

from __future__ import annotations

import math

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Target, inp, launch, out, scratch
from pyruntime.ops.base import LATEST, Op, op, refuse_float64


@op("Det", opsets=range(11, LATEST + 1))
class Det(Op):
    """x: floats [..., M, M]; y: [...]. Uses elimination with partial pivoting. An empty matrix has determinant 1."""

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        if x.rank < 2 or x.shape[-1] != x.shape[-2] or not x.dtype.is_float:
            self.fail("a float tensor [..., M, M]", x)
        return (x.with_shape(*x.shape[:-2]),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        with np.errstate(all="ignore"):
            return (np.asarray(np.linalg.det(x.astype(np.float64))).astype(x.dtype),)

    def lower(self, target: Target, x: TensorType) -> tuple[Dispatch, ...]:
        refuse_float64(x)
        (y,) = self.infer(x)
        count, m = math.prod(x.shape[:-2]), x.shape[-1]
        tensors = {"x": inp(0, x), "work": scratch(DType.FLOAT, *x.shape), "y": out(0, y)}
        return (launch("determinant", tensors, target.fold(max(1, count)), {}, {"count": count, "m": m}),)

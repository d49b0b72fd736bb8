"""LpNormalization: y = x / (sum |x|^p)^(1/p) along an axis, 0 where the norm is 0. Source: ONNX operator."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Target, elementwise, inp, out, scratch
from pyruntime.kernels.reduce import reduction
from pyruntime.ops._folds import FOLDS
from pyruntime.ops.base import LATEST, Op, Unsupported, op


@op("LpNormalization", opsets=range(1, LATEST + 1))
class LpNormalization(Op):
    """p is 1 or 2; norms are summed in float32 (float64: float64) and y is rounded once."""

    axis: int = -1
    p: int = 2

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        self.axis_of(self.axis, x.rank)
        if self.p not in (1, 2):
            self.fail("p to be 1 or 2", self.p)
        return (TensorType(x.dtype, x.shape),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        wide = x.astype(np.float64)
        axis = self.axis_of(self.axis, x.ndim) if x.ndim else None
        total = np.sum(np.abs(wide) if self.p == 1 else np.square(wide), axis=axis, keepdims=True)
        norm = total if self.p == 1 else np.sqrt(total)
        with np.errstate(all="ignore"):
            return (np.where(norm == 0, 0.0, wide / norm).astype(x.dtype),)

    def lower(self, target: Target, x: TensorType) -> tuple[Dispatch, ...]:
        if x.dtype is DType.DOUBLE:
            raise Unsupported("float64 is exact on the host")
        axes = (self.axis_of(self.axis, x.rank),) if x.rank else ()
        fold = FOLDS[f"L{self.p}"](x.dtype)
        assert fold is not None
        norm = scratch(DType.FLOAT, *(1 if d in axes else n for d, n in enumerate(x.shape)))
        scaled = elementwise(
            target,
            "divide_by_norm",
            {"x": inp(0, x), "norm": norm},
            out(0, x),
            "if (norm == 0.0) { return 0.0; } return x / norm;",
        )
        return (*reduction(target, fold, norm, inp(0, x), axes), scaled)

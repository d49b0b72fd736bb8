"""LpNormalization: y = x / (sum |x|^p)^(1/p) along an axis, 0 where the norm is 0. Source: ONNX."""

from __future__ import annotations

from typing import Annotated

from pyruntime.ir import DType, TensorType
from pyruntime.ops.base import LATEST, op
from pyruntime.ops.decomposed import Decomposed, Expansion


@op("LpNormalization", opsets=range(1, LATEST + 1))
class LpNormalization(Decomposed):
    """p: 1 or 2. Norms are summed in float32 (float64 inputs: float64), and y is rounded once."""

    axis: int = -1
    p: Annotated[int, 1, 2] = 2

    def expand(self, body: Expansion, x: TensorType) -> tuple[TensorType | None, ...]:
        axis = self.axis_of(self.axis, x.rank)
        self.floating(x)
        wide = body.cast(x, DType.DOUBLE if x.dtype is DType.DOUBLE else DType.FLOAT)
        zero = body.number(0.0, wide.dtype)
        norm = body(f"ReduceL{self.p}", wide, body.ints(*([axis] if x.rank else [])), keepdims=1)
        y = body("Where", body("Equal", norm, zero), zero, body("Div", wide, norm))
        return (body.cast(y, x.dtype),)

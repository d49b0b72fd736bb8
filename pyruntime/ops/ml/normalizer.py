"""Normalizer: divide rows by their norm. Source: ONNX operator ai.onnx.ml.Normalizer."""

from __future__ import annotations

from typing import Annotated

from pyruntime.ir import DType, TensorType
from pyruntime.ops.base import op
from pyruntime.ops.decomposed import Decomposed, Expansion
from pyruntime.ops.ml.shared import ALL, matrix

_NORMS = {"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}


@op("Normalizer", domain="ai.onnx.ml", opsets=ALL)
class Normalizer(Decomposed):
    """MAX: x / max(x); L1: x / Σ|x|; L2: x / √Σx². Rows with divisor 0 are unchanged. x: [N, C] or [C]; y: float32."""

    norm: Annotated[str, "MAX", "L1", "L2"] = "MAX"

    def expand(self, body: Expansion, x: TensorType) -> tuple[TensorType | None, ...]:
        matrix(self, x)
        wide = DType.DOUBLE if x.dtype is DType.DOUBLE else DType.FLOAT
        rows = body.cast(x, wide)
        if x.size:
            norm = body(_NORMS[self.norm], rows, body.ints(-1), keepdims=1)
            is_zero = body("Equal", norm, body.number(0, wide))
            rows = body("Div", rows, body("Where", is_zero, body.number(1, wide), norm))
        return (body.cast(rows, DType.FLOAT),)

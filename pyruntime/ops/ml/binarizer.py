"""Binarizer: y = 1 where x > threshold, else 0. Source: ONNX operator ai.onnx.ml.Binarizer."""

from __future__ import annotations

from pyruntime.ir import DType, TensorType
from pyruntime.ops.base import op
from pyruntime.ops.decomposed import Decomposed, Expansion
from pyruntime.ops.ml.shared import ALL, numbers


@op("Binarizer", domain="ai.onnx.ml", opsets=ALL)
class Binarizer(Decomposed):
    """Elementwise; NaN gives 0."""

    threshold: float = 0.0

    def expand(self, body: Expansion, x: TensorType) -> tuple[TensorType | None, ...]:
        numbers(self, x)
        wide = x.dtype if x.dtype.is_float else DType.DOUBLE
        return (body.cast(body("Greater", body.cast(x, wide), body.number(self.threshold, wide)), x.dtype),)

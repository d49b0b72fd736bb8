"""Scaler: y = (x - offset) · scale. Source: ONNX operator ai.onnx.ml.Scaler."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import DType, TensorType
from pyruntime.ops.base import op
from pyruntime.ops.decomposed import Decomposed, Expansion
from pyruntime.ops.ml.shared import ALL, numbers


@op("Scaler", domain="ai.onnx.ml", opsets=ALL)
class Scaler(Decomposed):
    """x: [N, F] or [F]; offset and scale: F numbers, or a single one (for x of any shape). y: float32."""

    offset: tuple[float, ...] | None = None
    scale: tuple[float, ...] | None = None

    def expand(self, body: Expansion, x: TensorType) -> tuple[TensorType | None, ...]:
        numbers(self, x)
        wide = DType.DOUBLE if x.dtype is DType.DOUBLE else DType.FLOAT
        y = body.cast(x, wide)
        for op_type, name, values in (("Sub", "offset", self.offset), ("Mul", "scale", self.scale)):
            if values is not None and len(values) != 1 and (x.rank not in (1, 2) or len(values) != x.shape[-1]):
                self.fail(f"one number as {name}, or one for every column of [N, F]", f"{len(values)} for {x}")
            if values:
                terms = np.array(values if len(values) > 1 else values[0], np.float32)
                y = body(op_type, y, body.constant(terms.astype(wide.numpy), wide))
        return (body.cast(y, DType.FLOAT),)

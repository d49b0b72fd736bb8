"""Normalizer: divide rows by their norm. Source: ONNX operator ai.onnx.ml.Normalizer."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Source, Target, gather_map, inp, out
from pyruntime.ops.base import Op, Unsupported, op
from pyruntime.ops.ml.shared import ALL, as_float, matrix

_STEPS = {
    "MAX": ("v[0]", "select(max(norm, v), norm + v, is_nan(norm) || is_nan(v))", "norm"),
    "L1": ("0.0", "norm + abs(v)", "norm"),
    "L2": ("0.0", "norm + v * v", "sqrt(norm)"),
}


@op("Normalizer", domain="ai.onnx.ml", opsets=ALL)
class Normalizer(Op):
    """MAX: x / max(x); L1: x / Σ|x|; L2: x / √Σx². Rows with divisor 0 are unchanged. x: [N, C] or [C]; y: float32."""

    norm: str = "MAX"

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        matrix(self, x)
        if self.norm not in _STEPS:
            self.fail(f"norm in {', '.join(_STEPS)}", self.norm)
        return (TensorType(DType.FLOAT, x.shape),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        rows = as_float(x)
        if not rows.size:
            return (x.astype(np.float32),)
        if self.norm == "MAX":
            norm = rows.max(axis=1, keepdims=True)
        else:
            order = 1 if self.norm == "L1" else 2
            norm = np.linalg.norm(rows.astype(np.float64), order, axis=1, keepdims=True)
        y = np.where(norm == 0, rows, rows / np.where(norm == 0, 1, norm))
        return (y.astype(np.float32).reshape(x.shape),)

    def lower(self, target: Target, x: TensorType) -> tuple[Dispatch, ...]:
        if x.dtype.is_wide:
            raise Unsupported(f"{x.dtype.onnx_name} is normalized on the host")
        columns = x.shape[-1]
        start, step, end = _STEPS[self.norm]
        element = (
            "let begin = i - i % params.columns;\n"
            f"  var norm = {start.replace('v[0]', 'f32(load_x(begin))')};\n"
            "  for (var k = 0u; k < params.columns; k++) {\n"
            f"    let v = f32(load_x(begin + k));\n    norm = {step};\n  }}\n"
            f"  let divisor = {end};\n"
            "  return f32(load_x(i)) / select(divisor, 1.0, divisor == 0.0);"
        )
        y = TensorType(DType.FLOAT, x.shape)
        name = f"normalizer_{self.norm.lower()}"
        return (gather_map(target, name, out(0, y), [Source("x", inp(0, x))], element, {"columns": columns}),)

"""Binarizer: y = 1 where x > threshold, else 0. Source: ONNX operator ai.onnx.ml.Binarizer."""

from __future__ import annotations

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Target, elementwise, inp, out
from pyruntime.ops.base import Op, Unsupported, op
from pyruntime.ops.ml.shared import ALL, numbers


@op("Binarizer", domain="ai.onnx.ml", opsets=ALL)
class Binarizer(Op):
    """Elementwise; NaN gives 0."""

    threshold: float = 0.0

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        numbers(self, x)
        return (TensorType(x.dtype, x.shape),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return ((x > self.threshold).astype(x.dtype),)

    def lower(self, target: Target, x: TensorType) -> tuple[Dispatch, ...]:
        if x.dtype.compute != "f32":
            raise Unsupported(f"{x.dtype.onnx_name} is compared with a float on the host")
        expr = "select(0.0, 1.0, x > threshold && !is_nan(x))"
        scalars = {"threshold": float(self.threshold)}
        return (elementwise(target, "binarizer", {"x": inp(0, x)}, out(0, x), expr, scalars),)

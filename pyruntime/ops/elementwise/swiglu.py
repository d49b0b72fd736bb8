"""SwiGLU: y = a / (1 + e^(-alpha a)) · b. Source: ONNX operator SwiGLU."""

from __future__ import annotations

from pyruntime.ir import Array, TensorType
from pyruntime.ops.base import LATEST, op
from pyruntime.ops.elementwise.elementwise import Elementwise, classes
from pyruntime.ops.elementwise.unary import sigmoid


@op("SwiGLU", opsets=range(28, LATEST + 1))
class SwiGLU(Elementwise):
    """a: gate, b: values, of the same shape."""

    names = ("a", "b")
    scalars = ("alpha",)
    wgsl = classes(f32="swish(a, alpha) * b")

    alpha: float = 1.0

    def infer(self, a: TensorType, b: TensorType) -> tuple[TensorType, ...]:
        if a.shape != b.shape:
            self.fail("inputs of one shape", f"{a} and {b}")
        return super().infer(a, b)

    def compute(self, a: Array, b: Array) -> Array:
        result: Array = a * sigmoid(self.alpha * a) * b
        return result

"""Activation functions with attributes. Source: the ONNX operators of these names."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.ops.base import LATEST, op
from pyruntime.ops.elementwise.elementwise import FLOATS, NUMBERS, Elementwise, Expression, classes, compute_class
from pyruntime.ops.elementwise.special_functions import erf
from pyruntime.ops.elementwise.unary import sigmoid

NARROW = frozenset((DType.INT8, DType.UINT8, DType.INT16, DType.UINT16))
"""Integer types for which float32 arithmetic is exact."""


@op("Celu", opsets=range(12, LATEST + 1))
class Celu(Elementwise):
    """y = max(0, x) + min(0, alpha (e^(x / alpha) - 1))"""

    scalars = ("alpha",)
    wgsl = classes(f32="celu(x, alpha)")

    alpha: float = 1.0

    def compute(self, x: Array) -> Array:
        return np.where(x < 0, self.alpha * np.expm1(x / self.alpha), x)


@op("Elu", opsets=range(6, LATEST + 1))
class Elu(Elementwise):
    """y = x where x >= 0, else alpha (e^x - 1)"""

    scalars = ("alpha",)
    wgsl = classes(f32="elu(x, alpha)")

    alpha: float = 1.0

    def compute(self, x: Array) -> Array:
        return np.where(x < 0, self.alpha * np.expm1(x), x)


@op("Selu", opsets=range(6, LATEST + 1))
class Selu(Elementwise):
    """y = gamma x where x > 0, else gamma alpha (e^x - 1)"""

    scalars = ("alpha", "gamma")
    wgsl = classes(f32="selu(x, alpha, gamma)")

    alpha: float = 1.67326319217681884765625
    gamma: float = 1.05070102214813232421875

    def compute(self, x: Array) -> Array:
        return self.gamma * np.where(x < 0, self.alpha * np.expm1(x), x)


@op("LeakyRelu", opsets=range(6, LATEST + 1))
class LeakyRelu(Elementwise):
    """y = x where x >= 0, else alpha x"""

    scalars = ("alpha",)
    wgsl = classes(f32="leaky_relu(x, alpha)")

    alpha: float = 0.01

    def compute(self, x: Array) -> Array:
        return np.where(x < 0, self.alpha * x, x)


@op("ThresholdedRelu", opsets=range(1, LATEST + 1))
class ThresholdedRelu(Elementwise):
    """y = x where x > alpha, else 0"""

    scalars = ("alpha",)
    wgsl = classes(f32="thresholded_relu(x, alpha)")

    alpha: float = 1.0

    def compute(self, x: Array) -> Array:
        return np.where(x > self.alpha, x, 0)


@op("HardSigmoid", opsets=range(6, LATEST + 1))
class HardSigmoid(Elementwise):
    """y = max(0, min(1, alpha x + beta))"""

    scalars = ("alpha", "beta")
    wgsl = classes(f32="hard_sigmoid(x, alpha, beta)")

    alpha: float = 0.2
    beta: float = 0.5

    def compute(self, x: Array) -> Array:
        result: Array = np.minimum(np.maximum(self.alpha * x + self.beta, 0), 1)
        return result


@op("Swish", opsets=range(24, LATEST + 1))
class Swish(Elementwise):
    """y = x / (1 + e^(-alpha x))"""

    scalars = ("alpha",)
    wgsl = classes(f32="swish(x, alpha)")

    alpha: float = 1.0

    def compute(self, x: Array) -> Array:
        return x * sigmoid(self.alpha * x)


@op("Gelu", opsets=range(20, LATEST + 1))
class Gelu(Elementwise):
    """y = x/2 (1 + erf(x / sqrt 2)), or with "tanh": x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))"""

    approximate: str = "none"

    def compute(self, x: Array) -> Array:
        if self.approximate == "tanh":
            result: Array = x * sigmoid(np.sqrt(8 / np.pi).astype(x.dtype) * (x + x.dtype.type(0.044715) * x**3))
            return result
        return x * (0.5 + 0.5 * erf(x / np.sqrt(2.0)))

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        if self.approximate not in ("none", "tanh"):
            self.fail("approximate to be 'none' or 'tanh'", repr(self.approximate))
        return super().infer(x)

    def expression(self, *dtypes: DType | None) -> Expression | None:
        code = "gelu_tanh(x)" if self.approximate == "tanh" else "gelu(x)"
        return Expression(code, self.names) if dtypes[0] and compute_class(dtypes[0]) == "f32" else None


@op("Shrink", opsets=range(9, LATEST + 1))
class Shrink(Elementwise):
    """y = x + bias where x < -lambd, x - bias where x > lambd, else 0. Results for integers are truncated."""

    dtypes = NUMBERS
    scalars = ("bias", "lambd")

    bias: float = 0.0
    lambd: float = 0.5

    def compute(self, x: Array) -> Array:
        wide = x if x.dtype.kind == "f" else x.astype(np.float64)
        return np.where(wide < -self.lambd, wide + self.bias, np.where(wide > self.lambd, wide - self.bias, 0))

    def expression(self, *dtypes: DType | None) -> Expression | None:
        scalars = {"bias": self.bias, "lambd": self.lambd}
        if dtypes[0] in FLOATS - {DType.DOUBLE}:
            return Expression("shrink(x, bias, lambd)", self.names, scalars)
        if dtypes[0] in NARROW:
            kind = compute_class(dtypes[0])
            cast = "i32_of_f32" if kind == "i32" else "u32_of_f32"
            return Expression(f"{cast}(shrink(f32(x), bias, lambd))", self.names, scalars)
        return None


@op("PRelu", opsets=range(7, LATEST + 1))
class PRelu(Elementwise):
    """y = x where x >= 0, else slope · x; slope broadcasts to x."""

    names = ("x", "slope")
    dtypes = FLOATS | {DType.INT32, DType.INT64, DType.UINT32, DType.UINT64}
    wgsl = classes(
        f32="leaky_relu(x, slope)",
        i32="select(x, slope * x, x < 0)",
        u32="x",
        i64="select(x, i64_mul(slope, x), (x.y >> 31u) == 1u)",
        u64="x",
    )

    def infer(self, x: TensorType, slope: TensorType) -> tuple[TensorType, ...]:
        (y,) = super().infer(x, slope)
        if y.shape != x.shape:
            self.fail(f"slope to broadcast to {list(x.shape)}", list(slope.shape))
        return (y,)

    def compute(self, x: Array, slope: Array) -> Array:
        return np.where(x < 0, slope * x, x)

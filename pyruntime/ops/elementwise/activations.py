"""Activation functions with attributes. Source: the ONNX operators of these names."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.ops.base import LATEST, op
from pyruntime.ops.elementwise.elementwise import (
    FLOATS,
    FLOATS_8,
    NUMBERS,
    Elementwise,
    Expression,
    Unary,
    classes,
    compute_class,
    define,
)
from pyruntime.ops.elementwise.special_functions import erf
from pyruntime.ops.elementwise.unary import sigmoid

NARROW = frozenset((DType.INT8, DType.UINT8, DType.INT16, DType.UINT16))
"""Integer types for which float32 arithmetic is exact."""


ROWS = (
    Unary(
        "Celu",
        12,
        FLOATS,
        lambda x, alpha: np.where(x < 0, alpha * np.expm1(x / alpha), x),
        f32="celu(x, alpha)",
        attributes={"alpha": 1.0},
    ),
    Unary(
        "Elu",
        6,
        FLOATS,
        lambda x, alpha: np.where(x < 0, alpha * np.expm1(x), x),
        f32="elu(x, alpha)",
        attributes={"alpha": 1.0},
    ),
    Unary(
        "HardSigmoid",
        6,
        FLOATS,
        lambda x, alpha, beta: np.minimum(np.maximum(alpha * x + beta, 0), 1),
        f32="hard_sigmoid(x, alpha, beta)",
        attributes={"alpha": 0.2, "beta": 0.5},
    ),
    Unary(
        "IsInf",
        10,
        FLOATS | FLOATS_8,
        lambda x, negative, positive: np.isposinf(x) & bool(positive) | np.isneginf(x) & bool(negative),
        f32="is_inf(x) && select(detect_positive, detect_negative, is_negative(x)) != 0",
        predicate=True,
        attributes={"detect_negative": 1, "detect_positive": 1},
    ),
    Unary(
        "LeakyRelu",
        6,
        FLOATS,
        lambda x, alpha: np.where(x < 0, alpha * x, x),
        f32="leaky_relu(x, alpha)",
        attributes={"alpha": 0.01},
    ),
    Unary(
        "Selu",
        6,
        FLOATS,
        lambda x, alpha, gamma: gamma * np.where(x < 0, alpha * np.expm1(x), x),
        f32="selu(x, alpha, gamma)",
        attributes={"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875},
    ),
    Unary(
        "Swish",
        24,
        FLOATS,
        lambda x, alpha: x * sigmoid(alpha * x),
        f32="swish(x, alpha)",
        attributes={"alpha": 1.0},
    ),
    Unary(
        "ThresholdedRelu",
        1,
        FLOATS,
        lambda x, alpha: np.where(x > alpha, x, 0),
        f32="thresholded_relu(x, alpha)",
        attributes={"alpha": 1.0},
    ),
)

globals().update(define(__name__, ROWS))


@op("Gelu", opsets=range(20, LATEST + 1))
class Gelu(Elementwise):
    """y = x/2 (1 + erf(x / sqrt 2)), or with "tanh": x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))"""

    approximate: Annotated[str, "none", "tanh"] = "none"

    def compute(self, x: Array) -> Array:
        if self.approximate == "tanh":
            result: Array = x * sigmoid(np.sqrt(8 / np.pi).astype(x.dtype) * (x + x.dtype.type(0.044715) * x**3))
            return result
        return x * (0.5 + 0.5 * erf(x / np.sqrt(2.0)))

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

"""Experimental operators of early ONNX versions, found in files of early converters (Core ML, Keras).

    Affine  alpha · x + beta      ParametricSoftplus  alpha · ln(1 + e^(beta · x))
    Scale   scale · x             ScaledTanh          alpha · tanh(beta · x)
    Crop    crop images           ImageScaler         scale · x + bias, by channel

Source: ONNX 1.4, experimental operators; onnxruntime's schemas.
"""

from __future__ import annotations

import numpy as np

from pyruntime.ir import DType, TensorType
from pyruntime.ops.base import op
from pyruntime.ops.decomposed import Decomposed, Expansion

_OPSETS = range(1, 10)


def _times(body: Expansion, x: TensorType, factor: float) -> TensorType:
    return body("Mul", x, body.number(factor, x.dtype))


@op("Affine", opsets=_OPSETS)
class Affine(Decomposed):
    """y = alpha · x + beta; x: floats."""

    alpha: float = 1.0
    beta: float = 0.0

    def expand(self, body: Expansion, x: TensorType) -> tuple[TensorType | None, ...]:
        return (body("Add", _times(body, x, self.alpha), body.number(self.beta, x.dtype)),)


@op("Scale", opsets=_OPSETS)
class Scale(Decomposed):
    """y = scale · x; x: floats."""

    scale: float = 1.0

    def expand(self, body: Expansion, x: TensorType) -> tuple[TensorType | None, ...]:
        return (_times(body, x, self.scale),)


@op("ScaledTanh", opsets=_OPSETS)
class ScaledTanh(Decomposed):
    """y = alpha · tanh(beta · x); x: floats."""

    alpha: float
    beta: float

    def expand(self, body: Expansion, x: TensorType) -> tuple[TensorType | None, ...]:
        return (_times(body, body("Tanh", _times(body, x, self.beta)), self.alpha),)


@op("ParametricSoftplus", opsets=_OPSETS)
class ParametricSoftplus(Decomposed):
    """y = alpha · ln(1 + e^(beta · x)); x: floats."""

    alpha: float
    beta: float

    def expand(self, body: Expansion, x: TensorType) -> tuple[TensorType | None, ...]:
        return (_times(body, body("Softplus", _times(body, x, self.beta)), self.alpha),)


@op("ImageScaler", opsets=_OPSETS)
class ImageScaler(Decomposed):
    """x: [N, C, H, W]; bias: C numbers."""

    bias: tuple[float, ...]
    scale: float = 1.0

    def expand(self, body: Expansion, x: TensorType) -> tuple[TensorType | None, ...]:
        if x.rank != 4 or len(self.bias) != x.shape[1]:
            self.fail(f"x [N, {len(self.bias)}, H, W]", x)
        bias = body.constant(np.array(self.bias, np.float32)[:, None, None], DType.FLOAT)
        return (body("Add", _times(body, x, self.scale), body.cast(bias, x.dtype)),)


@op("Crop", opsets=_OPSETS)
class Crop(Decomposed):
    """x: [N, C, H, W]; border: columns to remove on the left, rows above, columns on the right, rows below.

    `scale`, the height and width of the result, replaces the last two borders.
    """

    border: tuple[int, ...]
    scale: tuple[int, ...] | None = None

    def expand(self, body: Expansion, x: TensorType) -> tuple[TensorType | None, ...]:
        if x.rank != 4 or len(self.border) != 4 or len(self.scale or (0, 0)) != 2:
            self.fail("x [N, C, H, W], border of four numbers and scale of two", f"{x}, {self.border}, {self.scale}")
        left, top, right, bottom = self.border
        ends = (x.shape[2] - bottom, x.shape[3] - right)
        if self.scale:
            ends = (top + self.scale[0], left + self.scale[1])
        if min(self.border) < 0 or not top < ends[0] <= x.shape[2] or not left < ends[1] <= x.shape[3]:
            self.fail("a crop inside the image", f"rows {top} to {ends[0]}, columns {left} to {ends[1]} of {x}")
        return (body("Slice", x, body.ints(top, left), body.ints(*map(int, ends)), body.ints(2, 3)),)

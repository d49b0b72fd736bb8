"""Gelu variants. Source: com.microsoft operators of these names.

Gelu           y = x/2 (1 + erf(x / sqrt 2))
BiasGelu       Gelu(a + b)
FastGelu       x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) of x + bias
QuickGelu      x / (1 + e^(-alpha x))
BiasSplitGelu  l · Gelu(r), x + bias = [l, r] along the last axis
ScaledSiLU     z / (1 + e^(-z)), z = alpha x, or scale · x
"""

from __future__ import annotations

from pyruntime.ir import DType, TensorType
from pyruntime.ops.base import Op, op
from pyruntime.ops.decomposed import Decomposed, Expansion
from pyruntime.ops.registry import op_class


def _check_bias(node: Op, x: TensorType, bias: TensorType | None) -> None:
    """Raise InvalidGraph unless `bias` is a vector as long as the last axis of x."""
    if bias is not None and (not x.rank or bias.shape != x.shape[-1:]):
        node.fail(f"a bias [{x.shape[-1] if x.rank else '?'}]", f"{bias} for {x}")


@op("Gelu", opsets=range(1, 2), domain="com.microsoft")
class Gelu(Decomposed):
    """x: floats of any shape."""

    def expand(self, body: Expansion, x: TensorType) -> tuple[TensorType | None, ...]:
        return (body("Gelu", x),)


@op("BiasGelu", opsets=range(1, 2), domain="com.microsoft")
class BiasGelu(Decomposed):
    """a: [..., D], b: [D], floats of one type."""

    def expand(self, body: Expansion, a: TensorType, b: TensorType) -> tuple[TensorType | None, ...]:
        _check_bias(self, a, b)
        return (body("Gelu", body("Add", a, b)),)


@op("FastGelu", opsets=range(1, 2), domain="com.microsoft")
class FastGelu(Decomposed):
    """x: [..., D], bias: [D], floats of one type."""

    def expand(self, body: Expansion, x: TensorType, bias: TensorType | None = None) -> tuple[TensorType | None, ...]:
        _check_bias(self, x, bias)
        return (body("Gelu", x if bias is None else body("Add", x, bias), approximate="tanh"),)


@op("QuickGelu", opsets=range(1, 2), domain="com.microsoft")
class QuickGelu(Decomposed):
    """x: floats of any shape."""

    alpha: float = 1.7020000219345093

    def expand(self, body: Expansion, x: TensorType) -> tuple[TensorType | None, ...]:
        return (body("Swish", x, alpha=self.alpha),)


@op("BiasSplitGelu", opsets=range(1, 2), domain="com.microsoft")
class BiasSplitGelu(Decomposed):
    """x: [..., D], bias: [D], D even; y: [..., D / 2]."""

    def expand(self, body: Expansion, x: TensorType, bias: TensorType) -> tuple[TensorType | None, ...]:
        _check_bias(self, x, bias)
        if x.shape[-1] % 2:
            self.fail("a last axis of even length", x)
        split = op_class("Split", "", 18)(axis=-1, num_outputs=2, present=(True, True))  # type: ignore[call-arg]
        left, right = body.apply(split, body("Add", x, bias))
        return (body("Mul", left, body("Gelu", right)),)


@op("ScaledSiLU", opsets=range(1, 2), domain="com.microsoft")
class ScaledSiLU(Decomposed):
    """x: floats of any shape; scale: one float of any type. Each product and the sigmoid are rounded to x's type."""

    alpha: float = 1.0

    def expand(self, body: Expansion, x: TensorType, scale: TensorType | None = None) -> tuple[TensorType | None, ...]:
        if scale is not None and scale.size != 1:
            self.fail("a scale of one element", scale)
        if scale is None:
            scaled = body("Mul", x, body.number(self.alpha, x.dtype))
        else:
            wide = DType.FLOAT if scale.dtype is DType.FLOAT else x.dtype
            number = body("Reshape", body.cast(scale, wide), body.ints())
            scaled = body.cast(body("Mul", body.cast(x, wide), number), x.dtype)
        return (body("Mul", scaled, body("Sigmoid", scaled)),)

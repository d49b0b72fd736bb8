"""Activation functions of recurrent layers, in NumPy and WGSL. Source: ONNX operators LSTM, GRU, RNN."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pyruntime.ir import Array
from pyruntime.ops.elementwise.unary import sigmoid, softplus

__all__ = ["Gate", "gates"]

Function = Callable[[Array, float, float], Array]

_FUNCTIONS: dict[str, tuple[Function, str, tuple[float, ...]]] = {
    "relu": (lambda x, a, b: np.maximum(x, 0), "relu(x)", ()),
    "tanh": (lambda x, a, b: np.tanh(x), "hyperbolic_tangent(x)", ()),
    "sigmoid": (lambda x, a, b: sigmoid(x), "sigmoid(x)", ()),
    "affine": (lambda x, a, b: a * x + b, "({a} * x + {b})", (1.0, 0.0)),
    "leakyrelu": (lambda x, a, b: np.where(x >= 0, x, a * x), "leaky_relu(x, {a})", (0.01,)),
    "thresholdedrelu": (lambda x, a, b: np.where(x >= a, x, 0), "select(0.0, x, x >= {a})", (1.0,)),
    "scaledtanh": (lambda x, a, b: a * np.tanh(b * x), "({a} * hyperbolic_tangent({b} * x))", (1.0, 1.0)),
    "hardsigmoid": (lambda x, a, b: np.clip(a * x + b, 0, 1), "hard_sigmoid(x, {a}, {b})", (0.2, 0.5)),
    "elu": (lambda x, a, b: np.where(x >= 0, x, a * np.expm1(x)), "elu(x, {a})", (1.0,)),
    "softsign": (lambda x, a, b: x / (1 + np.abs(x)), "softsign(x)", ()),
    "softplus": (lambda x, a, b: softplus(x), "softplus(x)", ()),
}
"""Lower-case name -> (function of x, alpha and beta; its WGSL; defaults of the parameters that it takes)."""


@dataclass(frozen=True, slots=True)
class Gate:
    """An activation function and its parameters."""

    name: str
    alpha: float = 0.0
    beta: float = 0.0

    def __call__(self, x: Array) -> Array:
        with np.errstate(over="ignore"):
            return np.asarray(_FUNCTIONS[self.name][0](x, self.alpha, self.beta), x.dtype)

    @property
    def wgsl(self) -> str:
        """The function as an f32 expression of `x`."""
        return _FUNCTIONS[self.name][1].format(a=f"{self.alpha!r}f", b=f"{self.beta!r}f")


def gates(names: Sequence[str], alphas: Sequence[float], betas: Sequence[float]) -> tuple[Gate, ...]:
    """Return the functions called `names`. Those with parameters take values from `alphas` and `betas` in order.

    Raises:
        KeyError: unknown function.
    """
    left = [list(alphas), list(betas)]
    made = []
    for name in names:
        defaults = _FUNCTIONS[name.lower()][2]
        values = [queue.pop(0) if queue else default for queue, default in zip(left, defaults, strict=False)]
        made.append(Gate(name.lower(), *values))
    return tuple(made)

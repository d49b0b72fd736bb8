"""Activations that fused operators name in an attribute."""

from __future__ import annotations

from collections.abc import Sequence

from pyruntime.ir import TensorType
from pyruntime.ops.base import Op
from pyruntime.ops.decomposed import Expansion

__all__ = ["activate"]

_PARAMETERS: dict[str, tuple[str, ...]] = {
    "Celu": ("alpha",),
    "Elu": ("alpha",),
    "Gelu": (),
    "HardSigmoid": ("alpha", "beta"),
    "HardSwish": (),
    "LeakyRelu": ("alpha",),
    "Mish": (),
    "Relu": (),
    "Selu": ("alpha", "gamma"),
    "Sigmoid": (),
    "Softplus": (),
    "Softsign": (),
    "Tanh": (),
    "ThresholdedRelu": ("alpha",),
}
"""Activation operators, and their attributes in the order of the given numbers."""


def activate(op: Op, body: Expansion, x: TensorType, name: str | None, numbers: Sequence[float | None]) -> TensorType:
    """Apply the ONNX operator `name` to x; return x without a name. 'Clip' takes a minimum and a maximum.

    Args:
        numbers: parameters of the activation; None and missing ones take the operator's defaults.

    Raises:
        InvalidGraph: `name` is not a supported activation.
    """
    if not name:
        return x
    if name == "Clip":
        bounds = [None if n is None else body.number(n, x.dtype) for n in numbers[:2]]
        return body("Clip", x, *bounds)
    if name not in _PARAMETERS:
        op.fail(f"an activation of Clip, {', '.join(_PARAMETERS)}", repr(name))
    given = {k: n for k, n in zip(_PARAMETERS[name], numbers, strict=False) if n is not None}
    return body(name, x, **given)

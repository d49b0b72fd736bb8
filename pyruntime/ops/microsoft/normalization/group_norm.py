"""GroupNorm and SkipGroupNorm: y = activation(GroupNormalization(s)). Source: com.microsoft operators of these names.

Channels are the last axis (channels_last) or axis 1. GroupNorm: s = x. SkipGroupNorm: s = x + skip + bias, also an
output.
"""

from __future__ import annotations

from typing import Annotated, Any

from pyruntime.ir import TensorType
from pyruntime.ops.base import attributes, op
from pyruntime.ops.decomposed import Decomposed, Expansion
from pyruntime.ops.microsoft.channels_last import channels_first, channels_last
from pyruntime.ops.operands import named


@attributes
class _GroupNorm(Decomposed):
    """x: [N, D1 .. Dn, C] or [N, C, D1 .. Dn], float; gamma, beta: [C], floats of one type, which may differ from x's.

    activation: 0: none, 1: SiLU.
    """

    activation: Annotated[int, 0, 1]
    channels_last: int = 1
    epsilon: float = 1e-5
    groups: int

    def normalized(self, body: Expansion, x: TensorType, gamma: TensorType, beta: TensorType) -> TensorType:
        """Return activation(GroupNormalization(x))."""
        if x.rank < 3:
            self.fail("an input of batch, channels and at least one spatial axis", x)
        weights = (body.cast(p, x.dtype) for p in (gamma, beta))
        planes = channels_first(body, x) if self.channels_last else x
        y = body("GroupNormalization", planes, *weights, num_groups=self.groups, epsilon=self.epsilon)
        if self.activation:
            y = body("Swish", y)
        return channels_last(body, y) if self.channels_last else y


@op("GroupNorm", opsets=range(1, 2), domain="com.microsoft")
class GroupNorm(_GroupNorm):
    """GroupNorm without skip. Source: com.microsoft operator GroupNorm."""

    def expand(
        self, body: Expansion, x: TensorType, gamma: TensorType, beta: TensorType
    ) -> tuple[TensorType | None, ...]:
        return (self.normalized(body, x, gamma, beta),)


@op("SkipGroupNorm", opsets=range(1, 2), domain="com.microsoft")
class SkipGroupNorm(_GroupNorm):
    """skip: x's shape, [N, 1 .. 1, C] (channels first: [N, C, 1 .. 1]) or [N, C]; bias: [C]; both of x's type."""

    operands = named("x gamma beta skip", optional="bias")

    def expand(self, body: Expansion, *inputs: Any) -> tuple[TensorType | None, ...]:
        x, gamma, beta, skip, bias = self.operands(*inputs)
        channels = x.shape[-1] if self.channels_last else x.shape[min(1, x.rank - 1)]
        flat = (x.shape[0], *(1,) * (x.rank - 2))
        one = (*flat, channels) if self.channels_last else (x.shape[0], channels, *flat[1:])
        if skip.shape == (x.shape[0], channels) and x.rank != 2:
            skip = body("Reshape", skip, body.ints(*one))
        if skip.shape not in (x.shape, one):
            self.fail("a skip of the shape of x, or of one element a channel", f"{skip} for {x}")
        total = body("Add", x, skip)
        if bias is not None:
            if bias.shape != (channels,):
                self.fail(f"a bias [{channels}]", bias)
            column = bias if self.channels_last else body("Reshape", bias, body.ints(channels, *flat[1:]))
            total = body("Add", total, column)
        return self.normalized(body, total, gamma, beta), total

"""Gates of recurrent layers. Source: com.microsoft operators of these names.

    GatedAdd             output = x + y · gate
    GatedRMSNorm         y = x / sqrt(mean(x²) + epsilon) · scale · activation(gate)
    LinearAttentionGate  decay = decay_scale · ln(1 + e^(a + dt_bias)), beta = 1 / (1 + e^(-b))

GatedRMSNorm and LinearAttentionGate are computed in float32 and rounded once.
"""

from __future__ import annotations

from typing import Annotated, Any

from pyruntime.ir import DType, TensorType
from pyruntime.ops.base import op
from pyruntime.ops.decomposed import Decomposed, Expansion
from pyruntime.ops.operands import named

_ACTIVATIONS = {"silu": "Swish", "swish": "Swish", "sigmoid": "Sigmoid"}


@op("GatedAdd", opsets=range(1, 2), domain="com.microsoft")
class GatedAdd(Decomposed):
    """x, y: [.., C], gate: [.., 1], floats of one type.

    With gate_weight [K, 1], the gate is sigmoid(gate @ gate_weight) for gate: [.., K], computed in float32; the product
    and the sigmoid are each rounded to the input type.
    """

    def expand(
        self, body: Expansion, x: TensorType, y: TensorType, gate: TensorType, gate_weight: TensorType | None = None
    ) -> tuple[TensorType | None, ...]:
        columns = 1
        if gate_weight is not None:
            if gate_weight.rank != 2 or gate_weight.shape[1] != 1:
                self.fail("a gate_weight [K, 1]", gate_weight)
            columns = gate_weight.shape[0]
        if x.shape != y.shape or gate.shape != (*x.shape[:-1], columns):
            self.fail(f"x and y of one shape [.., C], and a gate [.., {columns}]", f"{x}, {y}, {gate}")
        dtype = self.same_dtype(x, y, gate, gate_weight)
        if gate_weight is not None:
            products = body("MatMul", body.cast(gate, DType.FLOAT), body.cast(gate_weight, DType.FLOAT))
            rounded = body.cast(body.cast(products, dtype), DType.FLOAT)
            gate = body.cast(body("Sigmoid", rounded), dtype)
        return (body("Add", x, body("Mul", y, gate)),)


@op("GatedRMSNorm", opsets=range(1, 2), domain="com.microsoft")
class GatedRMSNorm(Decomposed):
    """x, gate: [.., H · C], scale: [C], floats of one type. The mean is over blocks of C elements."""

    activation: Annotated[str, "silu", "swish", "sigmoid"] = "silu"
    epsilon: float = 1e-5

    def expand(
        self, body: Expansion, x: TensorType, scale: TensorType, gate: TensorType
    ) -> tuple[TensorType | None, ...]:
        if scale.rank != 1 or not x.rank or not scale.size or x.shape[-1] % scale.size or gate.shape != x.shape:
            self.fail("a gate of x's shape, and a scale [C] that divides its last axis", f"{x}, {scale}, {gate}")
        self.same_dtype(x, scale, gate)
        wide = DType.FLOAT if x.dtype.bits < 32 else x.dtype
        rows = x if x.shape[-1] == scale.size else body("Reshape", x, body.ints(-1, scale.size))
        y = body("RMSNormalization", rows, body.cast(scale, wide), epsilon=self.epsilon)
        y = y if rows is x else body("Reshape", y, body.ints(*x.shape))
        opened = body(_ACTIVATIONS[self.activation], body.cast(gate, wide))
        return (body.cast(body("Mul", y, opened), x.dtype),)


@op("LinearAttentionGate", opsets=range(1, 2), domain="com.microsoft")
class LinearAttentionGate(Decomposed):
    """a, b: [B, T, H], floats of one type; dt_bias, decay_scale: float32 [H]."""

    operands = named("a dt_bias decay_scale", optional="b")

    def expand(self, body: Expansion, *inputs: Any) -> tuple[TensorType | None, ...]:
        a, dt_bias, decay_scale, b = self.operands(*inputs)
        if dt_bias.shape != a.shape[-1:] or decay_scale.shape != a.shape[-1:]:
            self.fail(f"dt_bias and decay_scale {list(a.shape[-1:])}", f"{dt_bias} and {decay_scale}")
        if b is None and self.wants(1):
            self.fail("an input b for the output beta", "none")
        sharp = body("Softplus", body("Add", body.cast(a, DType.FLOAT), dt_bias))
        decay = body.cast(body("Mul", decay_scale, sharp), a.dtype)
        return decay, None if b is None else body("Sigmoid", b)

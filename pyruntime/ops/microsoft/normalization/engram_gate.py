"""EngramGate: gate a value by the similarity of a key and a query. Source: com.microsoft.EngramGate.

    d      = Σ_h norm(key) · norm(query) / sqrt(H), norm(x) = x / sqrt(mean(x²) + epsilon) · scale
    gate   = sigmoid(sign(d) · sqrt(max(|d|, 1e-6)))
    output = gate · value, gated_value_normed = norm(output)

Computed in float32; each output is rounded once.
"""

from __future__ import annotations

import math
from typing import Any

from pyruntime.ir import DType, TensorType
from pyruntime.ops.base import op
from pyruntime.ops.decomposed import Decomposed, Expansion
from pyruntime.ops.microsoft.normalization.streams import check_floats
from pyruntime.ops.operands import named


@op("EngramGate", opsets=range(1, 2), domain="com.microsoft")
class EngramGate(Decomposed):
    """key, query: [B, L, C, H]; value: [B, L, H], for all C; scales: [C, H]; floats of one type. Outputs: like key."""

    operands = named("key query value key_scale query_scale", optional="conv_scale")

    epsilon: float = 1e-5

    def expand(self, body: Expansion, *inputs: Any) -> tuple[TensorType | None, ...]:
        key, query, value, key_scale, query_scale, conv_scale = self.operands(*inputs)
        check_floats(self, key)
        dtype = self.same_dtype(key, query, value, key_scale, query_scale, conv_scale)
        if key.rank != 4:
            self.fail("keys [B, L, C, H]", key)
        batch, length, c, h = key.shape
        if query.shape != key.shape or value.shape != (batch, length, h):
            self.fail(f"queries {[batch, length, c, h]} and a value {[batch, length, h]}", f"{query} and {value}")
        for scale in (key_scale, query_scale, conv_scale):
            if scale is not None and scale.shape != (c, h):
                self.fail(f"scales {[c, h]}", scale)
        if self.wants(1) and conv_scale is None:
            self.fail("a conv_norm_scale for the output gated_value_normed", "none")
        product = body("Mul", self._normed(body, key, key_scale), self._normed(body, query, query_scale))
        total = body("ReduceSum", product, body.ints(-1), keepdims=1)
        d = body("Mul", total, body.number(1 / math.sqrt(max(1, h)), DType.FLOAT))
        root = body("Sqrt", body("Max", body("Abs", d), body.number(1e-6, DType.FLOAT)))
        gate = body("Sigmoid", body("Mul", body("Sign", d), root))
        y = body("Mul", gate, body("Unsqueeze", body.cast(value, DType.FLOAT), body.ints(2)))
        again = None if conv_scale is None else body.cast(self._normed(body, y, conv_scale), dtype)
        return body.cast(y, dtype), again

    def _normed(self, body: Expansion, x: TensorType, scale: TensorType) -> TensorType:
        x, scale = body.cast(x, DType.FLOAT), body.cast(scale, DType.FLOAT)
        return body("RMSNormalization", x, scale, epsilon=self.epsilon)

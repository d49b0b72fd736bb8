"""EngramGate: a value that a key and a query let through. Source: com.microsoft.EngramGate.

    dot    = Σ_h norm(key) · norm(query) / sqrt(H), norm(x) = x / sqrt(mean(x²) + epsilon) · scale
    gate   = sigmoid(sign(dot) · sqrt(max(|dot|, 1e-6)))
    output = gate · value, gated_value_normed = norm(output)

All is computed in float32; both outputs are rounded once.
"""

from __future__ import annotations

import math

from pyruntime.ir import DType, TensorType
from pyruntime.ops.base import op
from pyruntime.ops.contrib._streams import check_floats
from pyruntime.ops.contrib.branchwise_rms_norm import BranchwiseRMSNorm
from pyruntime.ops.decomposed import Decomposed, Expansion


@op("EngramGate", opsets=range(1, 2), domain="com.microsoft")
class EngramGate(Decomposed):
    """key, query: [B, L, C, H]; value: [B, L, H], for all C; scales: [C, H], floats of one type; both outputs as key."""

    epsilon: float = 1e-5

    def expand(
        self,
        body: Expansion,
        key: TensorType,
        query: TensorType,
        value: TensorType,
        key_scale: TensorType,
        query_scale: TensorType,
        conv_scale: TensorType | None = None,
    ) -> tuple[TensorType | None, ...]:
        self._check(key, query, value, key_scale, query_scale, conv_scale)
        wide = DType.FLOAT
        norm = BranchwiseRMSNorm(epsilon=self.epsilon)
        sides = ((key, key_scale), (query, query_scale))
        normed = [body.apply(norm, body.cast(x, wide), scale)[0] for x, scale in sides]
        product = body("ReduceSum", body("Mul", *normed), body.ints(-1), keepdims=1)
        dot = body("Mul", product, body.number(1 / math.sqrt(key.shape[-1]), wide))
        root = body("Sqrt", body("Max", body("Abs", dot), body.number(1e-6, wide)))
        gate = body("Sigmoid", body("Mul", body("Sign", dot), root))
        gated = body("Mul", gate, body("Unsqueeze", body.cast(value, wide), body.ints(2)))
        again = None
        if self.wants(1) and conv_scale is not None:
            again = body.cast(body.apply(norm, gated, conv_scale)[0], key.dtype)
        return body.cast(gated, key.dtype), again

    def _check(
        self,
        key: TensorType,
        query: TensorType,
        value: TensorType,
        key_scale: TensorType,
        query_scale: TensorType,
        conv_scale: TensorType | None,
    ) -> None:
        check_floats(self, key)
        self.same_dtype(key, query, value, key_scale, query_scale, conv_scale)
        if key.rank != 4 or not key.shape[2] or not key.shape[3]:
            self.fail("keys [B, L, C, H], C and H not 0", key)
        batch, length, c, h = key.shape
        if query.shape != key.shape or value.shape != (batch, length, h):
            self.fail(f"queries {[batch, length, c, h]} and a value {[batch, length, h]}", f"{query} and {value}")
        for scale in (key_scale, query_scale, conv_scale):
            if scale is not None and scale.shape != (c, h):
                self.fail(f"scales {[c, h]}", scale)
        if self.wants(1) and conv_scale is None:
            self.fail("a conv_norm_scale where gated_value_normed is wanted", "none")

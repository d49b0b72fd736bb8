"""GatedDeltaNet: LinearAttention over packed sequences. Source: com.microsoft operator GatedDeltaNet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pyruntime.ir import DType, TensorType
from pyruntime.ops.attention.linear_attention import RULES
from pyruntime.ops.base import op
from pyruntime.ops.decomposed import Decomposed, Expansion
from pyruntime.ops.microsoft.states.linear_attention import LinearAttention
from pyruntime.ops.microsoft.states.requests import joined, requests_of, rows_of
from pyruntime.ops.operands import named
from pyruntime.ops.registry import newest

_GATES = {"none": "", "softplus": "Softplus", "qwen": "Softplus", "sigmoid": "Sigmoid", "kda": "Sigmoid"}


@op("GatedDeltaNet", opsets=range(1, 2), domain="com.microsoft")
class GatedDeltaNet(Decomposed):
    """query, key: [tokens, G, K], value: [tokens, H, V], or [B, S, ...]; or all packed as [tokens, 2 · G · K + H · V].

    cu_seqlens: int32 [B + 1], cumulative sequence lengths, whose value planning needs. Without it, sequences have equal
    length, and initial_state gives their number. decay: [.., H] or [.., H, K]; beta: [.., H]; states: float32 [B, H, V,
    K]. With `gate_activation` 'softplus', the decay of LinearAttention is -exp(a_log) · softplus(decay + dt_bias); with
    'sigmoid' it is gate_lower_bound · sigmoid(exp(a_log) · (decay + dt_bias)). Computed in float32, rounded once.
    `state_update_capacity` is not supported.
    """

    operands = named(
        "query",
        optional="key value cu_seqlens decay beta initial_state a_log dt_bias capture_count state_update_active",
    )

    beta_activation: str = "none"
    chunk_size: int = 64
    gate_activation: str = "none"
    gate_lower_bound: float = -5.0
    qk_l2_norm: int = 0
    scale: float = 0.0
    state_update_capacity: int = 0
    update_rule: str = "gated_delta"

    def expand(self, body: Expansion, *inputs: Any) -> tuple[TensorType | None, ...]:
        given = self.operands(*inputs)
        if self.state_update_capacity or self.wants(2):
            self.fail("state_update_capacity 0 and no output state_update", self.state_update_capacity)
        q, k, v = (body.cast(x, DType.FLOAT) for x in self._unpacked(body, given))
        if q.rank not in (3, 4) or k.shape != q.shape or v.rank != q.rank:
            self.fail("query and key of one shape, and value, [tokens, heads, size] or [B, S, ...]", f"{q}, {k}, {v}")
        heads, state = v.shape[-2], given.initial_state
        if self.qk_l2_norm:
            q, k = self._unit(body, q), self._unit(body, k)
        decay, beta = self._decay(body, given, q, heads), given.beta and body.cast(given.beta, DType.FLOAT)
        if beta is not None and self.beta_activation == "sigmoid":
            beta = body("Sigmoid", beta)
        rows = [x and self._rows(body, x, v) for x in (q, k, v, decay, beta)]
        groups = q.shape[-2]
        attention = LinearAttention(
            kv_num_heads=heads, q_num_heads=groups, scale=self.scale, update_rule=self.update_rule, present=(True, True)
        )
        past = state and body("Transpose", state, perm=(0, 1, 3, 2))
        bounds = given.cu_seqlens
        if bounds is None and q.rank == 3:
            if state is None:
                self.fail("initial_state, cu_seqlens or inputs [B, S, ...]", "none of them")
            rows = [x and body("Reshape", x, body.ints(int(state.shape[0]), -1, x.shape[2])) for x in rows]
        made = [body.apply(attention, *rows[:3], past, *rows[3:])] if bounds is None else []
        for i, (begin, end) in enumerate([] if bounds is None else requests_of(self, bounds, q.shape[0], state)):
            part = [x and rows_of(body, x, begin, end, 1) for x in rows]
            made.append(body.apply(attention, *part[:3], past and rows_of(body, past, i, i + 1, 0), *part[3:]))
        y, states = (joined(body, [m[i] for m in made], 1 - i) for i in (0, 1))
        y = body("Reshape", y, body.ints(*((-1,) if q.rank == 3 else (0, -1)), heads, v.shape[-1]))
        return body.cast(y, given.query.dtype), body("Transpose", states, perm=(0, 1, 3, 2)), None

    def _unpacked(self, body: Expansion, given: Any) -> Sequence[TensorType]:
        if given.key is not None and given.value is not None:
            return given.query, given.key, given.value
        query, state = given.query, given.initial_state
        if query.rank != 2 or state is None or state.rank != 4:
            self.fail("key and value, or packed rows and an initial_state", f"{query} and {state}")
        heads, size_v, size_k = state.shape[1:]
        shared = (query.shape[1] - heads * size_v) // 2
        parts = body.apply(
            newest("Split", axis=1, present=(True,) * 3), query, body.ints(shared, shared, heads * size_v)
        )
        sizes = (size_k, size_k, size_v)
        return [body("Reshape", x, body.ints(0, -1, size)) for x, size in zip(parts, sizes, strict=True)]

    def _decay(self, body: Expansion, given: Any, q: TensorType, heads: int) -> TensorType | None:
        """Return the logarithm of the decay factor."""
        gated, delta = RULES.get(self.update_rule, (None, None))
        if gated != (given.decay is not None) or delta != (given.beta is not None):
            self.fail(f"decay and beta as '{self.update_rule}' needs them", f"{given.decay} and {given.beta}")
        kind = _GATES.get(self.gate_activation)
        if kind is None or bool(kind) != (given.a_log is not None and given.dt_bias is not None):
            self.fail("a_log and dt_bias where gate_activation is 'softplus' or 'sigmoid'", repr(self.gate_activation))
        if given.decay is None or not kind:
            return given.decay and body.cast(given.decay, DType.FLOAT)
        rate, bias = body("Exp", given.a_log), given.dt_bias
        if given.decay.rank == q.rank:  # per key component
            rate = body("Reshape", rate, body.ints(heads, 1))
            bias = body("Reshape", bias, body.ints(heads, -1))
        x = body("Add", body.cast(given.decay, DType.FLOAT), bias)
        if kind == "Softplus":
            return body("Neg", body("Mul", rate, body("Softplus", x)))
        bounded = body("Sigmoid", body("Mul", rate, x))
        return body("Mul", bounded, body.number(self.gate_lower_bound, DType.FLOAT))

    def _unit(self, body: Expansion, x: TensorType) -> TensorType:
        """Normalize vectors to length 1, with the epsilons of onnxruntime."""
        least = 1e-6 if _GATES.get(self.gate_activation) == "Sigmoid" else 1e-12
        square = body("ReduceSumSquare", x, body.ints(-1), keepdims=1)
        return body("Div", x, body("Sqrt", body("Add", square, body.number(least, DType.FLOAT))))

    @staticmethod
    def _rows(body: Expansion, x: TensorType, v: TensorType) -> TensorType:
        """Reshape x to [B, S, heads · size], or [1, tokens, heads · size]."""
        width = int(np.prod(x.shape[v.rank - 2 :]))
        return body("Reshape", x, body.ints(1, -1, width) if v.rank == 3 else body.ints(0, 0, width))

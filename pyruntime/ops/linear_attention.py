"""LinearAttention: attention through a state that every token updates. Source: ONNX operator LinearAttention.

    S = exp(g) ⊙ S;  v = beta · (v - Sᵀ k);  S = S + k ⊗ v;  y = scale · Sᵀ q

`update_rule` says which of decay g ('gated', 'gated_delta') and correction ('delta', 'gated_delta') there are.
q: [B, T, Hq·K], k: [B, T, H·K], v: [B, T, H·V], states: [B, H, K, V]; Hq is a multiple of H. Computed in float32,
rounded once.
"""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Operand, Target, inp, out, params_of, scratch, template
from pyruntime.ops.base import LATEST, Op, Unsupported, op

COLS = 32
RULES = {"linear": (False, False), "gated": (True, False), "delta": (False, True), "gated_delta": (True, True)}
"""Rule to (decay, correction)."""


@op("LinearAttention", opsets=range(27, LATEST + 1))
class LinearAttention(Op):
    """`chunk_size` is a hint and changes nothing."""

    chunk_size: int = 64
    kv_num_heads: int
    q_num_heads: int
    scale: float = 0.0
    update_rule: str = "gated_delta"

    def sizes(self, q: TensorType, k: TensorType, v: TensorType) -> tuple[int, int, int, int, int]:
        """B, T, H, K and V. Raises InvalidGraph."""
        h, hq = self.kv_num_heads, self.q_num_heads
        if h <= 0 or hq <= 0 or hq % h:
            self.fail("query heads that are a positive multiple of key heads", f"{hq} and {h}")
        if not q.rank == k.rank == v.rank == 3:
            self.fail("query, key and value of rank 3", f"{q}, {k}, {v}")
        b, t = q.shape[:2]
        size_k, size_v = q.shape[2] // hq, v.shape[2] // h
        if (q.shape[2], k.shape, v.shape) != (hq * size_k, (b, t, h * size_k), (b, t, h * size_v)):
            self.fail(f"shapes that fit {hq} query and {h} key heads", f"{q}, {k}, {v}")
        return b, t, h, size_k, size_v

    def infer(
        self,
        query: TensorType,
        key: TensorType,
        value: TensorType,
        past: TensorType | None = None,
        decay: TensorType | None = None,
        beta: TensorType | None = None,
    ) -> tuple[TensorType, ...]:
        dtype = self.same_dtype(query, key, value, decay, beta)
        b, t, h, size_k, size_v = self.sizes(query, key, value)
        if self.update_rule not in RULES:
            self.fail(f"update_rule to be one of {', '.join(RULES)}", repr(self.update_rule))
        gated, delta = RULES[self.update_rule]
        if (decay is not None, beta is not None) != (gated, delta):
            self.fail(f"decay and beta as '{self.update_rule}' needs them", f"{decay} and {beta}")
        state = (b, h, size_k, size_v)
        if past is not None and past.shape != state:
            self.fail(f"past_state of shape {list(state)}", past)
        if decay is not None and decay.shape not in ((b, t, h), (b, t, h * size_k)):
            self.fail(f"decay of shape {[b, t, h]} or {[b, t, h * size_k]}", decay)
        if beta is not None and beta.shape not in ((b, t, h), (b, t, 1)):
            self.fail(f"beta of shape {[b, t, h]} or {[b, t, 1]}", beta)
        y = TensorType(dtype, (b, t, self.q_num_heads * size_v))
        return y, TensorType(past.dtype if past is not None else dtype, state)

    def factor(self, size_k: int) -> float:
        """The factor of y."""
        return self.scale or 1.0 / float(np.sqrt(size_k))

    def evaluate(
        self,
        query: Array,
        key: Array,
        value: Array,
        past: Array | None = None,
        decay: Array | None = None,
        beta: Array | None = None,
    ) -> tuple[Array, ...]:
        b, t, _ = query.shape
        h, hq = self.kv_num_heads, self.q_num_heads

        def split(x: Array, heads: int) -> Array:
            return x.reshape(b, t, heads, -1).astype(np.float32)

        q, k, v = split(query, h), split(key, h), split(value, h)
        size_k, size_v = k.shape[3], v.shape[3]
        q = q.reshape(b, t, h, hq // h, size_k)
        state = np.zeros((b, h, size_k, size_v), np.float32) if past is None else past.astype(np.float32)
        y = np.empty((b, t, h, hq // h, size_v), np.float32)
        for i in range(t):
            if decay is not None:
                state = state * np.exp(split(decay, h)[:, i])[..., None]
            new = v[:, i]
            if beta is not None:
                recalled = np.einsum("bhkv,bhk->bhv", state, k[:, i])
                new = beta.astype(np.float32)[:, i, :, None] * (new - recalled)
            state = state + k[:, i, :, :, None] * new[:, :, None, :]
            y[:, i] = np.einsum("bhgk,bhkv->bhgv", q[:, i], state)
        y = y * np.float32(self.factor(size_k))
        final = state.astype(past.dtype if past is not None else query.dtype)
        return y.reshape(b, t, hq * size_v).astype(query.dtype), final

    def lower(
        self,
        target: Target,
        query: TensorType,
        key: TensorType,
        value: TensorType,
        past: TensorType | None = None,
        decay: TensorType | None = None,
        beta: TensorType | None = None,
    ) -> tuple[Dispatch, ...]:
        types = self.infer(query, key, value, past, decay, beta)
        b, t, h, size_k, size_v = self.sizes(query, key, value)
        cols = COLS
        while cols > 1 and 4 * size_k * cols > target.limits.workgroup_bytes:
            cols //= 2
        if 4 * size_k * cols > target.limits.workgroup_bytes:
            raise Unsupported(f"keys of {size_k} components do not fit workgroup memory")
        given: dict[str, Operand | None] = {
            name: inp(i, x) if x is not None else None
            for i, (name, x) in enumerate(zip(_NAMES, (query, key, value, past, decay, beta), strict=True))
        }
        given["y"] = out(0, types[0]) if self.wants(0) else scratch(0, types[0].dtype, *types[0].shape)
        given["state"] = out(1, types[1]) if self.wants(1) else scratch(1, types[1].dtype, *types[1].shape)
        bound = {name: operand for name, operand in given.items() if operand is not None}
        by_key = decay is not None and decay.shape[2] != h
        flags = {"GATED": decay is not None, "BY_KEY": by_key, "DELTA": beta is not None, "PAST": past is not None}
        kernel = template(
            "linear_attention",
            {name: operand.type.dtype for name, operand in bound.items()},
            DIM=size_k,
            COLS=cols,
            **{k: 1 for k, v in flags.items() if v},
        )
        blocks = -(-size_v // cols)
        params = params_of(
            kernel,
            times=t,
            heads=h,
            group=self.q_num_heads // h,
            size_k=size_k,
            size_v=size_v,
            blocks=blocks,
            groups=b * h * blocks,
            beta_heads=beta.shape[2] if beta is not None else 1,
            scale=self.factor(size_k),
        )
        operands = tuple(bound[x.name] for x in kernel.bindings)
        flops = 6 * b * t * self.q_num_heads * size_k * size_v
        return (Dispatch(kernel, operands, target.fold(b * h * blocks), params, flops=flops),)


_NAMES = ("query", "key", "value", "past", "decay", "beta")

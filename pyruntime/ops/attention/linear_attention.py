"""LinearAttention: recurrent attention with a state that each token updates. Source: ONNX operator LinearAttention.

    S = exp(g) ⊙ S;  v = beta · (v - Sᵀ k);  S = S + k ⊗ v;  y = scale · Sᵀ q

`update_rule` selects the decay g ('gated', 'gated_delta') and the correction of v ('delta', 'gated_delta'). q: [B, T,
Hq·K], k: [B, T, H·K], v: [B, T, H·V], states: [B, H, K, V]; Hq is a multiple of H. Computed in float32, rounded once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Operand, Target, launch, out, scratch
from pyruntime.ops.base import LATEST, Op, Unsupported, attributes, op
from pyruntime.ops.operands import bound, named, types_of

COLS = 32
RULES = {"linear": (False, False), "gated": (True, False), "delta": (False, True), "gated_delta": (True, True)}
"""Update rule -> (has decay, has correction)."""


@dataclass(frozen=True, slots=True)
class States:
    """Sizes: batch B; T tokens; heads of states, queries and keys; components of keys and values; states returned."""

    batch: int
    times: int
    heads: int
    queries: int
    keys: int
    size_k: int
    size_v: int
    window: int

    @property
    def results(self) -> int:
        """Number of heads of the output."""
        return max(self.heads, self.queries)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the state tensor; it has a leading axis where several states are returned."""
        one = (self.batch, self.heads, self.size_k, self.size_v)
        return (self.window, *one) if self.window else one


@attributes
class LinearAttentionBase(Op):
    """LinearAttention of ai.onnx and com.microsoft. `chunk_size` is a hint and does not affect results.

    Class attributes:
        shares: several state heads may share a query or key head, and gates that the rule does not use are accepted.
    """

    operands = named("query key value", optional="past decay beta")
    shares: ClassVar[bool] = False

    chunk_size: int = 64
    kv_num_heads: int
    q_num_heads: int
    scale: float = 0.0
    update_rule: Annotated[str, "linear", "gated", "delta", "gated_delta"] = "gated_delta"

    @property
    def window(self) -> int:
        """Number of states returned; 0: the last one, without a leading axis."""
        return 0

    def sizes(self, q: TensorType, k: TensorType, v: TensorType) -> States:
        """Return the sizes. Raises InvalidGraph if the shapes do not match."""
        h, hq = self.kv_num_heads, self.q_num_heads
        if h <= 0 or hq <= 0 or (hq % h and not (self.shares and h % hq == 0)):
            self.fail("query heads that are a positive multiple of key heads", f"{hq} and {h}")
        if not q.rank == k.rank == v.rank == 3:
            self.fail("query, key and value of rank 3", f"{q}, {k}, {v}")
        b, t = q.shape[:2]
        size_k, size_v = q.shape[2] // hq, v.shape[2] // h
        keys = k.shape[2] // max(1, size_k) if self.shares else h
        fits = (q.shape[2], k.shape, v.shape) == (hq * size_k, (b, t, keys * size_k), (b, t, h * size_v))
        if not fits or not keys or h % keys:
            self.fail(f"shapes that fit {hq} query and {h} key heads", f"{q}, {k}, {v}")
        return States(b, t, h, hq, keys, size_k, size_v, self.window)

    def infer(self, *inputs: Any) -> tuple[TensorType, ...]:
        query, key, value, past, decay, beta = self.operands(*inputs)
        dtype = self.floating(query, key, value, decay, beta)
        s = self.sizes(query, key, value)
        b, t, h, size_k = s.batch, s.times, s.heads, s.size_k
        gated, delta = RULES[self.update_rule]
        lacks = (gated and decay is None) or (delta and beta is None)
        surplus = (decay is not None and not gated) or (beta is not None and not delta)
        if lacks or (surplus and not self.shares):
            self.fail(f"decay and beta as '{self.update_rule}' needs them", f"{decay} and {beta}")
        state = s.shape
        if past is not None and past.shape != state:
            self.fail(f"past_state of shape {list(state)}", past)
        if decay is not None and decay.shape not in ((b, t, h), (b, t, h * size_k)):
            self.fail(f"decay of shape {[b, t, h]} or {[b, t, h * size_k]}", decay)
        if beta is not None and beta.shape not in ((b, t, h), (b, t, 1)):
            self.fail(f"beta of shape {[b, t, h]} or {[b, t, 1]}", beta)
        y = TensorType(dtype, (b, t, s.results * s.size_v))
        return y, TensorType(past.dtype if past is not None else dtype, state)

    def factor(self, size_k: int) -> float:
        """Return the scale of y."""
        return self.scale or 1.0 / math.sqrt(max(size_k, 1))

    def evaluate(self, *inputs: Any) -> tuple[Array, ...]:
        query, key, value, past, decay, beta = self.operands(*inputs)
        types: Any = types_of((query, key, value))
        s = self.sizes(*types)
        gated, delta = RULES[self.update_rule]

        def split(x: Array, heads: int, share: int) -> Array:
            whole = x.reshape(s.batch, s.times, heads, x.shape[2] // heads).astype(np.float32)
            return np.repeat(whole, share, axis=2)

        q = split(query, s.queries, max(1, s.heads // s.queries))
        k, v = split(key, s.keys, s.heads // s.keys), split(value, s.heads, 1)
        q = q.reshape(s.batch, s.times, s.heads, s.results // s.heads, s.size_k)
        state = np.zeros((s.batch, s.heads, s.size_k, s.size_v), np.float32)
        if past is not None:
            state = (past[-1] if s.window else past).astype(np.float32)
        kept = np.zeros((max(1, s.window), *state.shape), np.float32)
        if not s.window:
            kept[0] = state
        y = np.empty((s.batch, s.times, s.heads, s.results // s.heads, s.size_v), np.float32)
        for i in range(s.times):
            if gated and decay is not None:
                state = state * np.exp(split(decay, s.heads, 1)[:, i])[..., None]
            new = v[:, i]
            if delta and beta is not None:
                recalled = np.einsum("bhkv,bhk->bhv", state, k[:, i])
                new = beta.astype(np.float32)[:, i, :, None] * (new - recalled)
            state = state + k[:, i, :, :, None] * new[:, :, None, :]
            y[:, i] = np.einsum("bhgk,bhkv->bhgv", q[:, i], state)
            slot = i + len(kept) - s.times
            if slot >= 0:
                kept[slot] = state
        y = y * np.float32(self.factor(s.size_k))
        final = kept.reshape(s.shape).astype(past.dtype if past is not None else query.dtype)
        return y.reshape(s.batch, s.times, s.results * s.size_v).astype(query.dtype), final

    def lower(self, target: Target, *inputs: Any) -> tuple[Dispatch, ...]:
        types = self.infer(*inputs)
        s = self.sizes(*inputs[:3])
        b, t, h, size_k, size_v = s.batch, s.times, s.heads, s.size_k, s.size_v
        given = bound(self.operands, inputs)
        gated, delta = RULES[self.update_rule]
        given = given._replace(decay=given.decay if gated else None, beta=given.beta if delta else None)
        cols = COLS
        while cols > 1 and 4 * size_k * cols > target.limits.workgroup_bytes:
            cols //= 2
        if 4 * size_k * cols > target.limits.workgroup_bytes:
            raise Unsupported(f"keys of {size_k} components do not fit workgroup memory")
        tensors: dict[str, Operand] = {name: x for name, x in given._asdict().items() if x is not None}
        for i, name in enumerate(("y", "state")):
            tensors[name] = out(i, types[i]) if self.wants(i) else scratch(types[i].dtype, *types[i].shape)
        by_key = "decay" in tensors and tensors["decay"].type.shape[2] != h
        flags = {"GATED": "decay" in tensors, "BY_KEY": by_key, "DELTA": "beta" in tensors, "PAST": "past" in tensors}
        blocks = -(-size_v // cols)
        values = {
            "times": t,
            "heads": h,
            "group": s.results // h,
            "queries": s.queries,
            "query_share": max(1, h // s.queries),
            "key_heads": s.keys,
            "key_share": h // s.keys,
            "window": max(1, s.window),
            "slot": b * h * size_k * size_v,
            "past_base": max(0, s.window - 1) * b * h * size_k * size_v,
            "is_window": int(s.window > 0),
            "size_k": size_k,
            "size_v": size_v,
            "blocks": blocks,
            "groups": b * h * blocks,
            "beta_heads": tensors["beta"].type.shape[2] if "beta" in tensors else 1,
            "scale": self.factor(size_k),
        }
        defines, flops = {"DIM": size_k, "COLS": cols, **flags}, 6 * b * t * s.results * size_k * size_v
        return (launch("linear_attention", tensors, target.fold(b * h * blocks), defines, values, flops),)


@op("LinearAttention", opsets=range(27, LATEST + 1))
class LinearAttention(LinearAttentionBase):
    """LinearAttention of ai.onnx."""

"""Attention: softmax(softcap(scale · q kᵀ) + bias) v over heads. Source: ONNX operator Attention, opsets 23 to 25.

q: [B, Hq, M, D] or [B, M, Hq·D], k: [B, Hk, N, D], v: [B, Hk, N, E] or flat likewise; Hq is a multiple of Hk (grouped
query attention). past_key and past_value, of P positions, precede k and v: T = P + N keys in all. The bias is the sum
of attn_mask (a bool mask counts as 0 or -inf) and -inf for keys hidden by `is_causal`, the windows or
`nonpad_kv_seqlen`. A query with all keys hidden gives 0. Computed in float32 (float64 inputs: float64), rounded once
per output.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Operand, Target
from pyruntime.ops.attention.lowering import AttentionInputs, Heads, lower_attention
from pyruntime.ops.base import LATEST, Unsupported, attributes, attributes_of, op
from pyruntime.ops.caches import CacheOp
from pyruntime.ops.movement.append_rows import AppendsToCaches
from pyruntime.ops.operands import bound, index_of, types_of

__all__ = ["Attention"]


@attributes
class _Attention(CacheOp):
    """Attributes of opset 23, which later versions extend."""

    operands = AttentionInputs

    is_causal: int = 0
    kv_num_heads: int | None = None
    q_num_heads: int | None = None
    qk_matmul_output_mode: int = 0
    scale: float | None = None
    softcap: float = 0.0
    softmax_precision: int | None = None

    @property
    def windows(self) -> tuple[int, int]:
        """Positions visible to the left and to the right of a query; -1: unlimited."""
        return getattr(self, "left_window_size", -1), getattr(self, "right_window_size", -1)

    def sizes(self, *inputs: Any) -> Heads:
        """Return the sizes of the attention. Raises InvalidGraph if the input shapes do not match."""
        q, k, v, mask, past_key, past_value, nonpad = AttentionInputs(*inputs)
        flat = q.rank == 3
        if {q.rank, k.rank, v.rank} not in ({3}, {4}):
            self.fail("q, k and v of rank 3, or all of rank 4", f"{q}, {k}, {v}")
        if flat and not (self.q_num_heads and self.kv_num_heads):
            self.fail("q_num_heads and kv_num_heads with inputs of rank 3", "none")
        if flat:
            hq, hk = int(self.q_num_heads or 1), int(self.kv_num_heads or 1)
            if q.shape[2] % hq or k.shape[2] % hk or v.shape[2] % hk:
                self.fail(f"hidden sizes that are multiples of {hq} and {hk} heads", f"{q}, {k}, {v}")
            (b, m), n = q.shape[:2], k.shape[1]
            d, dk, e = q.shape[2] // hq, k.shape[2] // hk, v.shape[2] // hk
        else:
            (b, hq, m, d), (_, hk, n, dk), e = q.shape, k.shape, v.shape[3]
        past = past_key.shape[2] if past_key is not None else 0
        made = Heads(b, hq, hk, m, n, past, d, e, flat)
        fits = made.k_shape == k.shape and made.v_shape == v.shape and d == dk and hk and hq and hq % hk == 0
        if not fits:
            self.fail("k and v that fit q, and query heads a multiple of theirs", f"{q}, {k}, {v}")
        if (past_key is None) != (past_value is None):
            self.fail("past_key and past_value together", "one of them")
        for given, shape in ((past_key, (b, hk, past, d)), (past_value, (b, hk, past, e)), (nonpad, (b,))):
            if given is not None and given.shape != shape:
                self.fail(f"a tensor of shape {list(shape)}", given)
        if nonpad is not None and past_key is not None:
            self.fail("nonpad_kv_seqlen or past_key", "both")
        self._check_mask(mask, made)
        return made

    def _check_mask(self, mask: TensorType | None, heads: Heads) -> None:
        if mask is None:
            return
        full = (heads.batch, heads.q_heads, heads.queries, heads.total)
        lead = zip(reversed(mask.shape[:-1]), reversed(full[:-1]), strict=False)
        if not 1 <= mask.rank <= 4 or mask.shape[-1] > heads.total or any(d not in (1, n) for d, n in lead):
            self.fail(f"attn_mask to broadcast to {list(full)}", mask)

    def infer(self, *inputs: Any) -> tuple[TensorType, ...]:
        q, k, v = inputs[:3]
        for x in (q, k, v):
            if x.dtype not in (DType.FLOAT, DType.FLOAT16, DType.BFLOAT16, DType.DOUBLE):
                self.fail("q, k and v of float, float16, bfloat16 or double", x)
        h = self.sizes(*inputs)
        y = (h.batch, h.queries, h.q_heads * h.v_size) if h.flat else (h.batch, h.q_heads, h.queries, h.v_size)
        return (
            TensorType(q.dtype, y),
            TensorType(k.dtype, (h.batch, h.kv_heads, h.total, h.size)),
            TensorType(v.dtype, (h.batch, h.kv_heads, h.total, h.v_size)),
            TensorType(q.dtype, (h.batch, h.q_heads, h.queries, h.total)),
        )

    def scale_of(self, heads: Heads) -> float:
        """Return the factor of q kᵀ."""
        return self.scale if self.scale is not None else 1.0 / math.sqrt(max(heads.size, 1))

    def bias(self, heads: Heads, mask: Array | None, nonpad: Array | None, wide: Any) -> Array:
        """Return the array that is added to the scores, broadcastable to [B, Hq, M, T]; -inf hides a key."""
        shape = (heads.queries, heads.total)
        hidden = np.zeros((1, 1, *shape), bool)
        offset = np.full((1, 1, 1, 1), heads.past)
        if nonpad is not None:
            lengths = nonpad.reshape(-1, 1, 1, 1)
            offset = lengths - heads.queries
            hidden = hidden | (np.arange(heads.total) >= lengths)
        distance = np.arange(heads.total) - (np.arange(heads.queries)[:, None] + offset)
        left, right = self.windows
        if self.is_causal:
            hidden = hidden | (distance > 0)
        if left >= 0:
            hidden = hidden | (-distance > left)
        if right >= 0:
            hidden = hidden | (distance > right)
        bias = np.zeros((1, 1, *shape), wide)
        if mask is not None:
            short = [(0, 0)] * (mask.ndim - 1) + [(0, heads.total - mask.shape[-1])]
            added = np.where(mask, wide(0), wide(-np.inf)) if mask.dtype.kind == "b" else mask.astype(wide)
            bias = bias + np.pad(added, short, constant_values=-np.inf)
        return np.where(hidden, wide(-np.inf), bias)

    def evaluate(self, *inputs: Any) -> tuple[Array, ...]:
        q, k, v, mask, past_key, past_value, nonpad = AttentionInputs(*inputs)
        h = self.sizes(*types_of(inputs))
        wide: Any = np.float64 if q.dtype == np.float64 else np.float32
        queries, keys, values = (h.split(x, n) for x, n in ((q, h.q_heads), (k, h.kv_heads), (v, h.kv_heads)))
        if past_key is not None and past_value is not None:
            keys = np.concatenate((past_key, keys), axis=2)
            values = np.concatenate((past_value, values), axis=2)
        group = h.q_heads // h.kv_heads
        with np.errstate(all="ignore"):
            all_keys = np.repeat(keys.astype(wide), group, axis=1)
            scores = np.matmul(queries.astype(wide) * wide(self.scale_of(h)), all_keys.swapaxes(2, 3))
            stages = [scores]
            if self.softcap > 0:
                scores = np.tanh(scores / wide(self.softcap)) * wide(self.softcap)
            stages.append(scores)
            bias = self.bias(h, mask, nonpad, wide)
            stages.append(np.where(np.isneginf(bias), bias, scores + bias))
            stages.append(_probabilities(stages[2]))
            y = np.matmul(stages[3], np.repeat(values.astype(wide), group, axis=1))
        if h.flat:
            y = y.transpose(0, 2, 1, 3).reshape(h.batch, h.queries, h.q_heads * h.v_size)
        return y.astype(q.dtype), keys, values, stages[self.qk_matmul_output_mode].astype(q.dtype)

    def appends(self, *inputs: Any) -> dict[int, tuple[int, int]]:
        h = self.sizes(*inputs)
        if AttentionInputs(*inputs).past_key is None or h.size % 4 or h.v_size % 4:
            return {}
        return {1: (index_of(AttentionInputs, "past_key"), 2), 2: (index_of(AttentionInputs, "past_value"), 2)}

    def append_in_place(self, *inputs: Any) -> _AppendsInPlace:
        attributes = attributes_of(self)
        attributes["left_window_size"], attributes["right_window_size"] = self.windows
        return _AppendsInPlace(**attributes, past_rows=self.sizes(*inputs).past)

    def rows_read(self, index: int, *inputs: Any) -> tuple[int, int] | None:
        if index not in (1, 2) or AttentionInputs(*inputs).nonpad_kv_seqlen is None:
            return None
        return index_of(AttentionInputs, "nonpad_kv_seqlen"), 0

    def lower(self, target: Target, *inputs: Any) -> tuple[Dispatch, ...]:
        q, k, v, mask, *_ = AttentionInputs(*inputs)
        if any(x.dtype is DType.DOUBLE for x in (q, k, v)) or (mask is not None and mask.dtype.is_wide):
            raise Unsupported("64-bit types are exact on the host")
        given: AttentionInputs[Operand] = bound(AttentionInputs, inputs)
        return lower_attention(self, target, self.sizes(*inputs), given, self.infer(*inputs))


def _probabilities(scores: Array) -> Array:
    """Return the softmax along the last axis; 0 for rows of -inf."""
    top = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isneginf(top), 0, top))
    total = weights.sum(axis=-1, keepdims=True)
    result: Array = weights / np.where(total == 0, 1, total)
    return result


@op("Attention", opsets=range(25, LATEST + 1), earlier={range(23, 25): "left_window_size right_window_size"})
class Attention(_Attention):
    """Attention with sliding windows."""

    left_window_size: int = -1
    right_window_size: int = -1


@op("Attention", opsets=range(1, 2), domain="pyruntime")
class _AppendsInPlace(AppendsToCaches, Attention):
    """Attention that appends k and v in place to caches [B, Hk, C, ·], whose first `past_rows` rows are valid."""

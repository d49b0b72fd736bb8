"""MultiHeadAttention: attention with additive masks and caches. Source: com.microsoft operator MultiHeadAttention."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Target, inp, out
from pyruntime.kernels.attention_form import HeadView
from pyruntime.ops.append_rows import counted
from pyruntime.ops.base import Op, Unsupported, attributes_of, op
from pyruntime.ops.contrib._attention import heads_of, packed
from pyruntime.ops.contrib._masked import (
    Caches,
    MaskedHeads,
    Rows,
    attend_masked,
    check_bias,
    check_mask,
    filter_of,
    lower_masked,
    lowest,
)

_FLOATS = (DType.FLOAT, DType.FLOAT16, DType.BFLOAT16)


@op("MultiHeadAttention", opsets=range(1, 2), domain="com.microsoft")
class MultiHeadAttention(Op):
    """y = softmax(scale · (q + bias_q) (k + bias_k)ᵀ + mask + attention_bias) (v + bias_v).

    query: [B, S, H·D], key: [B, N, H·D], value: [B, N, H·E]; or key and value [B, H, N, ·], of cross attention; or key
    [B, N, H, 2, D] with values in it; or query [B, S, H, 3, D] with all. bias: [2·H·D + H·E] (only the query's part
    where key and value are of rank 4). key_padding_mask: `pyruntime/ops/contrib/_masked.py` tells the forms; it adds
    `mask_filter_value`. attention_bias: [B or 1, H or 1, S, T]. past_key, past_value: [B, H, P, ·]; the new rows follow
    them, or, with past_sequence_length, int32 [1], are set into them there. With `unidirectional` a query sees no key
    behind it; the first query is behind the past. cache_indirection, of beam search, is not supported.

    Outputs: y [B, S, H·E], the caches present_key, present_value [B, H, T, ·], and qk [B, H, S, T]: what goes into the
    softmax. Everything is computed in float32 and rounded once.
    """

    mask_filter_value: float | None = None
    num_heads: int
    scale: float | None = None
    unidirectional: int = 0

    def sizes(self, *inputs: TensorType | None) -> MaskedHeads:
        """The sizes. Raises InvalidGraph."""
        query, key, value, bias, _, _, past_key, past_value, length, beams = _all(inputs)
        heads = self.num_heads
        if beams is not None and length is not None and beams.shape[1] > 1:
            self.fail("no cache_indirection: beams are not supported", beams)
        if query is None or query.rank not in (3, 5) or heads <= 0:
            self.fail("a query of rank 3 or 5 and num_heads > 0", query)
        batch, queries = query.shape[:2]
        size = query.shape[4] if query.rank == 5 else query.shape[2] // heads
        wanted: tuple[Any, Any] = (None, None)
        new, v_size = queries, size
        if query.rank == 5:
            fits = query.shape == (batch, queries, heads, 3, size) and key is None and value is None
        elif key is not None and key.rank == 5:
            new = key.shape[1]
            fits = key.shape == (batch, new, heads, 2, size) and value is None
        elif key is not None and value is not None and key.rank == value.rank == 4:
            new, v_size = key.shape[2], value.shape[3]
            wanted = ((batch, heads, new, size), (batch, heads, new, v_size))
            fits = (key.shape, value.shape) == wanted
        elif key is not None and value is not None and key.rank == value.rank == 3:
            new, v_size = key.shape[1], value.shape[2] // heads
            wanted = ((batch, new, heads * size), (batch, new, heads * v_size))
            fits = (key.shape, value.shape) == wanted
        else:
            fits = False
        if not fits or (query.rank == 3 and query.shape[2] != heads * size):
            self.fail(f"query, key and value of {heads} heads that fit each other", f"{query}, {key}, {value}")
        width = heads * (2 * size + v_size)
        if bias is not None and bias.shape != (width,):
            self.fail(f"a bias of shape [{width}]", bias)
        past = past_key.shape[2] if past_key is not None and past_key.rank == 4 else 0
        for given, d in ((past_key, size), (past_value, v_size)):
            if (past_key is None) != (past_value is None) or (given and given.shape != (batch, heads, past, d)):
                self.fail(f"past_key and past_value of shape {[batch, heads, past, d]}", f"{past_key}, {past_value}")
        shared = length is not None and past_key is not None
        if shared and (length.dtype is not DType.INT32 or length.size != 1):
            self.fail("past_sequence_length of one int32", length)
        made = (batch, heads, queries, new, past, size, v_size, self.scale, filter_of(self.mask_filter_value))
        return MaskedHeads(*made, causal=bool(self.unidirectional), shared=shared)

    def infer(
        self,
        query: TensorType,
        key: TensorType | None = None,
        value: TensorType | None = None,
        bias: TensorType | None = None,
        key_padding_mask: TensorType | None = None,
        attention_bias: TensorType | None = None,
        past_key: TensorType | None = None,
        past_value: TensorType | None = None,
        past_sequence_length: TensorType | None = None,
        cache_indirection: TensorType | None = None,
    ) -> tuple[TensorType, ...]:
        inputs = (
            query,
            key,
            value,
            bias,
            key_padding_mask,
            attention_bias,
            past_key,
            past_value,
            past_sequence_length,
            cache_indirection,
        )
        s = self.sizes(*inputs)
        dtype: DType = self.same_dtype(query, key, value, bias, attention_bias, past_key, past_value)
        if dtype not in _FLOATS:
            self.fail("a query of float, float16 or bfloat16", query)
        check_mask(self, key_padding_mask, s)
        check_bias(self, attention_bias, s)
        made = (
            TensorType(dtype, (s.batch, s.queries, s.heads * s.v_size)),
            TensorType(dtype, (s.batch, s.heads, s.present, s.size)),
            TensorType(dtype, (s.batch, s.heads, s.present, s.v_size)),
        )
        if not self.wants(3):
            return made
        total = s.present
        if s.shared and past_sequence_length is not None:
            total = past_sequence_length.ints()[0] + s.new
        return (*made, TensorType(dtype, (s.batch, s.heads, s.queries, total)))

    def evaluate(self, *inputs: Array | None) -> tuple[Array, ...]:
        query, key, value, bias, mask, attention_bias, past_key, past_value, length, _ = _all(inputs)
        types = (None if x is None else TensorType(DType.from_numpy(x.dtype), x.shape) for x in inputs)
        s = self.sizes(*types)
        if query.ndim == 5:
            parts = [query[:, :, :, i].swapaxes(1, 2).astype(np.float32) for i in range(3)]
        elif key.ndim == 5:
            parts = [heads_of(query, s.heads), *(key[:, :, :, i].swapaxes(1, 2).astype(np.float32) for i in range(2))]
        elif key.ndim == 4:
            parts = [heads_of(query, s.heads), key.astype(np.float32), value.astype(np.float32)]
        else:
            parts = [heads_of(x, s.heads) for x in (query, key, value)]
        if bias is not None:
            split = np.split(bias.astype(np.float32), [s.heads * s.size, 2 * s.heads * s.size])
            added = 1 if key is not None and key.ndim == 4 else 3
            parts[:added] = [x + b.reshape(s.heads, 1, -1) for x, b in zip(parts[:added], split, strict=False)]
        past_length = int(length.reshape(-1)[0]) if s.shared else None
        y, k, v, scores = attend_masked(s, parts, (past_key, past_value), mask, attention_bias, past_length)
        kind = query.dtype
        made = (packed(y).astype(kind), k.astype(kind), v.astype(kind))
        if not self.wants(3):
            return made
        hidden = np.float32(lowest(DType.from_numpy(kind)))
        return (*made, np.where(np.isneginf(scores.before), hidden, scores.before).astype(kind))

    def appends(self, *inputs: TensorType | None) -> dict[int, tuple[int, int]]:
        s = self.sizes(*inputs)
        whole = s.size % 4 == 0 and s.v_size % 4 == 0
        return {1: (6, 2), 2: (7, 2)} if _all(inputs)[6] is not None and whole and not s.shared else {}

    def in_room(self, *inputs: TensorType | None) -> _InRoom:
        return _InRoom(**attributes_of(self), past_rows=self.sizes(*inputs).past)

    def lower(self, target: Target, *inputs: TensorType | None) -> tuple[Dispatch, ...]:
        query, key, value, bias, mask, attention_bias, past_key, past_value, length, _ = (
            None if x is None else inp(i, x) for i, x in enumerate(_all(inputs))
        )
        assert query is not None
        s, outs = self.sizes(*inputs), self.infer(*_all(inputs))
        if not s.present or not s.size:
            raise Unsupported("no keys")
        qk, width = s.heads * s.size, s.heads * (2 * s.size + s.v_size)
        at = (0, qk, 2 * qk)
        added = [None if bias is None else (bias, first) for first in at]

        def flat(rows: int, heads_width: int, size: int) -> HeadView:
            return HeadView(0, (rows * heads_width, size, heads_width, 1))

        q_rows = Rows(query, flat(s.queries, qk, s.size), added[0])
        if key is None or key.type.rank == 5:
            parts = 3 if key is None else 2
            of, rows = (query, s.queries) if key is None else (key, s.new)
            step = s.heads * parts * s.size
            views = [HeadView(p * s.size, (rows * step, parts * s.size, step, 1)) for p in range(parts)]
            made = [Rows(of, v, b) for v, b in zip(views, added[3 - parts :], strict=True)]
            qkv = (made[0], made[1], made[2]) if parts == 3 else (q_rows, made[0], made[1])
        elif key.type.rank == 4 and value is not None:
            qkv = (q_rows, Rows(key, HeadView.of(key)), Rows(value, HeadView.of(value)))
        else:
            assert value is not None
            k_rows = Rows(key, flat(s.new, qk, s.size), added[1])
            qkv = (q_rows, k_rows, Rows(value, flat(s.new, width - 2 * qk, s.v_size), added[2]))
        present = tuple(out(i, outs[i]) if self.wants(i) else None for i in (1, 2))
        behind = length if s.shared else None
        caches = Caches((past_key, past_value), (present[0], present[1]), behind, in_room=bool(self.overwrites))
        y = (out(0, outs[0]), flat(s.queries, s.heads * s.v_size, s.v_size)) if self.wants(0) else None
        scores = out(3, outs[3]) if self.wants(3) else None
        return tuple(lower_masked(target, s, qkv, caches, mask, attention_bias, y, scores))


@op("MultiHeadAttention", opsets=range(1, 2), domain="pyruntime")
class _InRoom(MultiHeadAttention):
    """With caches [B, H, C, ·] in memory with room, of which `past_rows` count; the new rows are written there."""

    past_rows: Any

    @property
    def overwrites(self) -> dict[int, int]:
        return {1: 6, 2: 7}

    def sizes(self, *inputs: TensorType | None) -> MaskedHeads:
        return super().sizes(*counted(_all(inputs), (6, 7), self.past_rows))

    def infer(self, *inputs: Any) -> tuple[TensorType, ...]:
        made = super().infer(*counted(_all(inputs), (6, 7), self.past_rows))
        return (made[0], inputs[6], inputs[7], *made[3:])


def _all(inputs: Any) -> list[Any]:
    """All inputs; those not given are None."""
    return [*inputs, *[None] * (10 - len(inputs))]

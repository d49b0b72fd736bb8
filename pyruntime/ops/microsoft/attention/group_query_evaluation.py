"""NumPy evaluation of GroupQueryAttention, in float32 and rounded once."""

from __future__ import annotations

import numpy as np

from pyruntime.errors import InvalidGraph
from pyruntime.ir import Array
from pyruntime.ops.attention.rotary import rotate
from pyruntime.ops.microsoft.attention.evaluation import attend, heads_of, packed, rms_norm, sees
from pyruntime.ops.microsoft.attention.group_query_form import GroupQueryForm, GroupQueryInputs, GroupQuerySizes
from pyruntime.ops.microsoft.attention.kv_cache import dequantized, quantized
from pyruntime.ops.microsoft.attention.packed_rows import pack_rows, unpack_rows

__all__ = ["evaluate_group_query"]


def evaluate_group_query(op: GroupQueryForm, s: GroupQuerySizes, given: GroupQueryInputs[Array]) -> tuple[Array, ...]:
    """Compute the outputs of a GroupQueryAttention node."""
    q, k, v = _fresh(op, s, given)
    ends = given.seqlens_k.reshape(-1).astype(np.int64) + 1
    total = int(given.total_sequence_length.reshape(-1)[0])
    first, valid = _first(s, given, ends, total)
    if given.q_norm_weight is not None and given.k_norm_weight is not None:
        q = rms_norm(q, given.q_norm_weight, op.epsilons[0])
        k = rms_norm(k, given.k_norm_weight, op.epsilons[1])
    if op.do_rotary:
        assert given.cos_cache is not None and given.sin_cache is not None
        rows = np.minimum(np.arange(s.queries), np.maximum(valid, 1)[:, None] - 1)
        at = given.position_ids if given.position_ids is not None else first[:, None] + rows
        q = rotate(q, given.cos_cache, given.sin_cache, at, bool(op.rotary_interleaved))
        k = rotate(k, given.cos_cache, given.sin_cache, at, bool(op.rotary_interleaved)) if s.new else k
    if op.sliding_window_cache:
        return _slide(op, s, (q, k, v), ends, valid, given)
    begin = first if s.new else ends
    fresh = ((k, given.past_key, given.k_scale), (v, given.past_value, given.v_scale))
    caches = [_cache(op, s, x, past, (begin, valid), scale) for x, past, scale in fresh]
    keys, values = (c[0] for c in caches)
    bias = given.attention_bias
    if bias is not None:
        bias = np.pad(bias.astype(np.float32), [(0, 0)] * 3 + [(0, s.present - bias.shape[3])])
    seen = sees(first, ends, s.queries, s.present, op.before, 0 if op.causal else -1)
    sink = _sink(op, given.head_sink)
    y, scores = attend(q, keys, values, op.factor(s.size), cap=op.cap, bias=bias, seen=seen, sink=sink)
    made = (packed(y).astype(given.query.dtype), caches[0][1], caches[1][1])
    if not op.wants(3):
        return made
    qk = scores.after if op.qk_output == 2 else np.where(seen, scores.before, np.float32(0))
    return (*made, qk[..., :total].astype(given.query.dtype))


def _first(s: GroupQuerySizes, given: GroupQueryInputs[Array], ends: Array, total: int) -> tuple[Array, Array]:
    """Return for each batch entry the position of the first query, and the number of rows that are tokens."""
    if given.query_seqlens is None:
        return np.where(total == s.queries, 0, ends - s.queries), np.full(s.batch, s.queries)
    valid = given.query_seqlens.astype(np.int64)
    if ((valid < 0) | (valid > np.minimum(s.queries, ends))).any() or (ends > total).any():
        raise InvalidGraph(
            f"GroupQueryAttention: expected query_seqlens from 0 to min({s.queries}, seqlens_k + 1), and seqlens_k + 1 "
            f"of at most total_sequence_length ({total}), got query_seqlens {valid.tolist()} and seqlens_k "
            f"{(ends - 1).tolist()}"
        )
    return ends - valid, valid


def _sink(op: GroupQueryForm, sink: Array | None) -> Array | None:
    if sink is None and op.smooth_softmax == 1:
        return np.zeros(op.num_heads, np.float32)
    return sink


def _fresh(op: GroupQueryForm, s: GroupQuerySizes, given: GroupQueryInputs[Array]) -> tuple[Array, Array, Array]:
    query, key, value = given.query, given.key, given.value
    if key is None or value is None:
        heads, groups = op.num_heads * s.size, op.kv_num_heads * s.size
        query, key, value = np.split(query, [heads, heads + groups], axis=2)
    return heads_of(query, op.num_heads), heads_of(key, op.kv_num_heads), heads_of(value, op.kv_num_heads)


def _cache(
    op: GroupQueryForm,
    s: GroupQuerySizes,
    x: Array,
    past: Array | None,
    places: tuple[Array, Array],
    scale: Array | None,
) -> tuple[Array, Array]:
    """Return keys or values in float32, and the cache as stored.

    Args:
        places: [B] each: index of the first new row, and number of new rows.
    """
    stored = x
    if op.is_packed:
        stored = pack_rows(x, op.bits)
    elif op.is_quantized:
        stored = quantized(x, scale, op.bits)
    if past is not None:
        stored = stored.astype(past.dtype)
    present = np.zeros((*stored.shape[:2], s.present, stored.shape[3]), stored.dtype)
    if past is not None:
        present[:, :, : s.past] = past
    for b, (begin, count) in enumerate(zip(*places, strict=True)):
        lo = int(np.clip(begin, 0, s.present))
        hi = min(lo + min(int(count), s.new), s.present)
        present[b, :, lo:hi] = stored[b, :, : hi - lo]
    if op.is_packed:
        return unpack_rows(present, op.bits), present
    if op.is_quantized:
        return dequantized(present, scale, op.bits, s.size), present
    return present.astype(np.float32), present


def _slide(
    op: GroupQueryForm,
    s: GroupQuerySizes,
    qkv: tuple[Array, Array, Array],
    ends: Array,
    valid: Array,
    given: GroupQueryInputs[Array],
) -> tuple[Array, ...]:
    """Compute the outputs with a sliding-window cache, one batch entry at a time."""
    q, k, v = qkv
    assert given.past_key is not None and given.past_value is not None
    y = np.zeros((s.batch, op.num_heads, s.queries, s.size), np.float32)
    fresh = ((k, given.past_key, given.k_scale), (v, given.past_value, given.v_scale))
    caches = [np.zeros_like(past) for _, past, _ in fresh]
    bias, sink = given.attention_bias, _sink(op, given.head_sink)
    for b in range(s.batch):
        end = int(ends[b])
        new = min(int(valid[b]), s.new, end)
        old = _resident(op, s, end - new)
        rows = []
        for cache, (x, past, scale) in zip(caches, fresh, strict=True):
            stored = quantized(x[b : b + 1], scale, op.bits) if op.is_quantized else x[b : b + 1]
            stored = stored[:, :, :new].astype(past.dtype)
            whole = np.concatenate((past[b : b + 1, :, :old], stored), axis=2)
            kept = _resident(op, s, end)
            cache[b, :, :kept] = whole[0, :, whole.shape[2] - kept :]
            rows.append(dequantized(whole, scale, op.bits, s.size) if op.is_quantized else whole)
        start = end - new - old
        mask = None if bias is None else bias[min(b, len(bias) - 1)][None, :, :, start:end]
        at = np.array([old])
        seen = sees(at, np.array([old + new]), s.queries, old + new, op.before, 0 if op.causal else -1)
        keys, values = (r.astype(np.float32) for r in rows)
        mine = q[b : b + 1]
        y[b : b + 1], _ = attend(mine, keys, values, op.factor(s.size), cap=op.cap, bias=mask, seen=seen, sink=sink)
    return packed(y).astype(given.query.dtype), caches[0], caches[1]


def _resident(op: GroupQueryForm, s: GroupQuerySizes, processed: int) -> int:
    """Return the number of rows that a sliding cache of s.past rows holds after `processed` tokens."""
    spare = s.past - op.local_window_size + 1
    return processed if processed <= s.past else processed - spare * -(-(processed - s.past) // spare)

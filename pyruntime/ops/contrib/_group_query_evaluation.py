"""GroupQueryAttention on NumPy: in float32, rounded once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pyruntime.ir import Array
from pyruntime.ops.contrib._attention import attend, heads_of, packed, rms_norm, rotate, sees
from pyruntime.ops.contrib._kv_cache import quantised, unquantised

if TYPE_CHECKING:
    from pyruntime.ops.contrib.group_query_attention import GroupQueryAttention, GroupQuerySizes

__all__ = ["evaluate_group_query"]


def evaluate_group_query(op: GroupQueryAttention, s: GroupQuerySizes, given: list[Any]) -> tuple[Array, ...]:
    """The outputs of a GroupQueryAttention node of sizes `s`, from all its inputs."""
    q, k, v = _fresh(op, s, given)
    ends = given[5].reshape(-1).astype(np.int64) + 1
    total = int(given[6].reshape(-1)[0])
    first = np.where(total == s.queries, 0, ends - s.queries)
    if given[14] is not None:
        q, k = rms_norm(q, given[14], op.qk_norm_epsilon), rms_norm(k, given[15], op.qk_norm_epsilon)
    if op.do_rotary:
        at = given[9] if given[9] is not None else first[:, None] + np.arange(s.queries)
        q = rotate(q, given[7], given[8], at, bool(op.rotary_interleaved))
        k = rotate(k, given[7], given[8], at, bool(op.rotary_interleaved)) if s.new else k
    if op.sliding_window_cache:
        return _slide(op, s, q, k, v, ends, given)
    begin = first if s.new else ends
    caches = [_cache(op, s, x, given[3 + i], begin, given[12 + i]) for i, x in enumerate((k, v))]
    keys, values = (c[0] for c in caches)
    bias = given[10]
    if bias is not None:
        bias = np.pad(bias.astype(np.float32), [(0, 0)] * 3 + [(0, s.present - bias.shape[3])])
    seen = sees(first, ends, s.queries, s.present, op.before, 0 if op.causal else -1)
    sink = _sink(op, given[11])
    y, scores = attend(q, keys, values, op.factor(s.size), cap=op.cap, bias=bias, seen=seen, sink=sink)
    made = (packed(y).astype(given[0].dtype), caches[0][1], caches[1][1])
    if not op.wants(3):
        return made
    qk = scores.after if op.qk_output == 2 else np.where(seen, scores.before, np.float32(0))
    return (*made, qk[..., :total].astype(given[0].dtype))


def _sink(op: GroupQueryAttention, sink: Array | None) -> Array | None:
    if sink is None and op.smooth_softmax == 1:
        return np.zeros(op.num_heads, np.float32)
    return sink


def _fresh(op: GroupQueryAttention, s: GroupQuerySizes, given: list[Any]) -> tuple[Array, Array, Array]:
    query, key, value = given[:3]
    if key is None:
        heads, groups = op.num_heads * s.size, op.kv_num_heads * s.size
        query, key, value = np.split(query, [heads, heads + groups], axis=2)
    return heads_of(query, op.num_heads), heads_of(key, op.kv_num_heads), heads_of(value, op.kv_num_heads)


def _cache(
    op: GroupQueryAttention, s: GroupQuerySizes, x: Array, past: Array | None, begin: Array, scale: Array | None
) -> tuple[Array, Array]:
    """Keys or values in float32, and the cache as it is stored."""
    stored = x if not op.is_quantised else quantised(x, scale, op.bits)
    if past is not None:
        stored = stored.astype(past.dtype)
    present = np.zeros((*stored.shape[:2], s.present, stored.shape[3]), stored.dtype)
    if past is not None:
        present[:, :, : s.past] = past
    for b in range(s.batch):
        lo = int(np.clip(begin[b], 0, s.present))
        hi = min(lo + s.new, s.present)
        present[b, :, lo:hi] = stored[b, :, : hi - lo]
    if op.is_quantised:
        return unquantised(present, scale, op.bits, s.size), present
    return present.astype(np.float32), present


def _slide(
    op: GroupQueryAttention, s: GroupQuerySizes, q: Array, k: Array, v: Array, ends: Array, given: list[Any]
) -> tuple[Array, ...]:
    """With a cache of the last rows alone: one batch entry after the other."""
    y = np.zeros((s.batch, op.num_heads, s.queries, s.size), np.float32)
    caches = [np.zeros_like(given[3]), np.zeros_like(given[4])]
    for b in range(s.batch):
        end = int(ends[b])
        new = min(s.new, end)
        old = _resident(op, s, end - new)
        rows = []
        for i, (x, scale) in enumerate(((k, given[12]), (v, given[13]))):
            stored = quantised(x[b : b + 1], scale, op.bits) if op.is_quantised else x[b : b + 1]
            stored = stored[:, :, :new].astype(given[3 + i].dtype)
            whole = np.concatenate((given[3 + i][b : b + 1, :, :old], stored), axis=2)
            kept = _resident(op, s, end)
            caches[i][b, :, :kept] = whole[0, :, whole.shape[2] - kept :]
            rows.append(unquantised(whole, scale, op.bits, s.size) if op.is_quantised else whole)
        start = end - new - old
        bias = None if given[10] is None else given[10][min(b, len(given[10]) - 1)][None, :, :, start:end]
        at = np.array([old])
        seen = sees(at, np.array([old + new]), s.queries, old + new, op.before, 0 if op.causal else -1)
        keys, values = (r.astype(np.float32) for r in rows)
        sink = _sink(op, given[11])
        mine = q[b : b + 1]
        y[b : b + 1], _ = attend(mine, keys, values, op.factor(s.size), cap=op.cap, bias=bias, seen=seen, sink=sink)
    return packed(y).astype(given[0].dtype), caches[0], caches[1]


def _resident(op: GroupQueryAttention, s: GroupQuerySizes, processed: int) -> int:
    """Rows a sliding cache of s.past rows holds after so many tokens."""
    spare = s.past - op.local_window_size + 1
    return processed if processed <= s.past else processed - spare * -(-(processed - s.past) // spare)

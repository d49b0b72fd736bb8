"""NumPy reference of attention, for the operators of com.microsoft."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pyruntime.ir import Array

__all__ = ["Scores", "attend", "heads_of", "packed", "rms_norm", "sees"]


def heads_of(x: Array, heads: int) -> Array:
    """Convert [B, S, heads · D] to float32 [B, heads, S, D]."""
    return x.reshape(x.shape[0], x.shape[1], heads, x.shape[2] // heads).swapaxes(1, 2).astype(np.float32)


def packed(x: Array) -> Array:
    """Convert [B, heads, S, D] to [B, S, heads · D]."""
    b, heads, s, d = x.shape
    return x.swapaxes(1, 2).reshape(b, s, heads * d)


def rms_norm(x: Array, weight: Array, epsilon: float) -> Array:
    """Return x / sqrt(mean(x²) + epsilon) · weight along the last axis."""
    mean = np.mean(np.square(x), axis=-1, keepdims=True)
    y: Array = x / np.sqrt(mean + np.float32(epsilon)) * weight.astype(np.float32)
    return y


def sees(first: Array, lengths: Array, queries: int, keys: int, before: int, after: int) -> Array:
    """Return a mask [B, 1, S, T], true where the query at position first[b] + i sees key j.

    Args:
        first: [B], position of the first query.
        lengths: [B], number of valid keys.
        before, after: keys visible before and after a query's position; negative: all.
    """
    distance: Array = np.arange(keys) - (first[:, None, None] + np.arange(queries)[:, None])
    seen: Array = np.broadcast_to(np.arange(keys) < lengths[:, None, None], distance.shape).copy()
    if before >= 0:
        seen &= -distance <= before
    if after >= 0:
        seen &= distance <= after
    return seen[:, None]


@dataclass(frozen=True)
class Scores:
    """Attention scores [B, H, S, T] before the softmax, with -inf for hidden keys, and after it."""

    before: Array
    after: Array


def attend(
    q: Array,
    k: Array,
    v: Array,
    scale: float,
    *,
    cap: float = 0.0,
    bias: Array | None = None,
    seen: Array | None = None,
    sink: Array | None = None,
) -> tuple[Array, Scores]:
    """Return y [B, H, S, E] = softmax(cap(scale · q kᵀ) + bias) v over visible keys, and the scores.

    q: [B, H, S, D], k: [B, G, T, D], v: [B, G, T, E], float32; H is a multiple of G. seen: mask of visible keys. sink:
    [H], scores of an additional key without value. A query without visible keys gives 0.
    """
    wide: Any = np.float32
    group = q.shape[1] // k.shape[1]
    with np.errstate(all="ignore"):
        scores = np.matmul(q * wide(scale), np.repeat(k, group, axis=1).swapaxes(2, 3))
        if cap > 0:
            scores = np.tanh(scores / wide(cap)) * wide(cap)
        if bias is not None:
            scores = scores + bias.astype(wide)
        if seen is not None:
            scores = np.where(seen, scores, wide(-np.inf))
        top = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
        if sink is not None:
            sink = sink.astype(wide).reshape(1, -1, 1, 1)
            top = np.maximum(top, sink)
        top = np.where(np.isneginf(top), wide(0), top)
        weights = np.exp(scores - top)
        total = weights.sum(axis=-1, keepdims=True)
        if sink is not None:
            total = total + np.exp(sink - top)
        weights = weights / np.where(total == 0, wide(1), total)
        values = np.repeat(v, group, axis=1)
        if seen is not None:
            # Values that no query sees are undefined and may be infinity or NaN.
            is_seen: Array = np.any(seen, axis=(1, 2))
            values = np.where(is_seen[:, None, :, None], values, wide(0))
        y = np.matmul(weights, values)
    return y, Scores(scores, weights)

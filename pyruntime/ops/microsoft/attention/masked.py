"""Attention with key padding masks and KV caches, for MultiHeadAttention, Attention and similar operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pyruntime.ir import Array, DType
from pyruntime.kernels import Dispatch, Operand, Source, Target, Unit, gather_map, move, scratch
from pyruntime.kernels.attention.append import Append, Lengths, Turn, append
from pyruntime.kernels.attention.attention import attend as attend_on_gpu
from pyruntime.kernels.attention.description import AttentionForm, AttentionTensors, HeadView, Reach
from pyruntime.ops.microsoft.attention.evaluation import Scores, attend, sees
from pyruntime.ops.microsoft.attention.masks import MaskedHeads, lower_mask, lowest, mask_array
from pyruntime.ops.microsoft.attention.scores import output_scores

__all__ = [
    "Added",
    "Cache",
    "Caches",
    "Results",
    "Rows",
    "attend_masked",
    "lower_masked",
]


def attend_masked(
    s: MaskedHeads,
    qkv: Sequence[Array],
    past: Sequence[Array | None],
    mask: Array | None,
    bias: Array | None,
    past_length: int | None = None,
) -> tuple[Array, Array, Array, Scores]:
    """Compute y [B, H, S, E], the new caches and the scores from q, k and v, float32 [B, H, rows, components]."""
    q, k, v = qkv
    before = s.past if past_length is None else past_length
    total = before + s.new
    caches = []
    for old, new in zip(past, (k, v), strict=True):
        whole = new
        if old is not None:
            new = new.astype(old.dtype)
            whole = np.concatenate((old[:, :, :before], new), axis=2)
            if s.shared:
                whole = np.concatenate((whole, old[:, :, total:]), axis=2)
        caches.append(whole)
    added = None if mask is None else mask_array(mask, s, before, total)
    if bias is not None:
        bias = bias[..., :total].astype(np.float32)
        added = bias if added is None else added + bias
    keys, values = (c[:, :, :total].astype(np.float32) for c in caches)
    seen = None
    if s.causal:
        ends = np.full(s.batch, total)
        seen = sees(np.full(s.batch, before), ends, s.queries, total, -1, 0)
    y, scores = attend(q, keys, values, s.factor(), bias=added, seen=seen)
    return y, caches[0], caches[1], scores


@dataclass(frozen=True, slots=True)
class Rows:
    """View [B, heads, rows, size] of heads in a tensor, and the bias to add, as in `Append`."""

    operand: Operand
    view: HeadView
    bias: tuple[Operand, int] | None = None


@dataclass(frozen=True, slots=True)
class Cache:
    """Keys or values of a cache.

    Attributes:
        past: rows before the new ones.
        present: output for all rows.
        past_heads: number of heads, over all batch entries, that precede this cache in `past`.
        stored: type of the rows if they are copied to an output; None: type of the new rows.
    """

    past: Operand | None = None
    present: Operand | None = None
    past_heads: int = 0
    stored: DType | None = None

    @property
    def is_used(self) -> bool:
        """Whether rows are read from or written to the cache."""
        return self.past is not None or self.present is not None or self.stored is not None


@dataclass(frozen=True, slots=True)
class Caches:
    """Caches of an attention.

    Attributes:
        length: int32 [1], number of valid rows of a shared buffer.
        stacked: output [2, B, H, T, D] for keys and values.
        in_place: past rows are in the memory of the outputs.
    """

    keys: Cache = Cache()
    values: Cache = Cache()
    length: Operand | None = None
    stacked: Operand | None = None
    in_place: bool = False

    @staticmethod
    def stacked_in(past: Operand | None, present: Operand | None, heads: int, length: Operand | None) -> Caches:
        """Return caches stored as [2, B, H, ·, D] of keys, then values; `heads` is B · H."""
        stored = None if present is None else present.type.dtype
        keys, values = Cache(past, stored=stored), Cache(past, past_heads=heads, stored=stored)
        return Caches(keys, values, length, stacked=present)


@dataclass(frozen=True, slots=True)
class Added:
    """Terms added to the scores: a key padding mask, attention_bias, both or neither."""

    mask: Operand | None = None
    bias: Operand | None = None


@dataclass(frozen=True, slots=True)
class Results:
    """Operands for the attention output (with its view) and the scores; None if the node does not name them."""

    y: tuple[Operand, HeadView] | None
    scores: Operand | None = None


def lower_masked(
    target: Target,
    s: MaskedHeads,
    qkv: tuple[Rows, Rows, Rows],
    caches: Caches,
    added: Added,
    results: Results,
    turn: Turn | None = None,
) -> list[Dispatch]:
    """Return the dispatches of `attend_masked`."""
    query, key, value = qkv
    prepared = _Prepared(target, s, caches)
    q, q_view = prepared.queries(query, turn)
    k, k_view = prepared.cached(key, caches.keys, s.size, turn)
    v, v_view = prepared.cached(value, caches.values, s.v_size)
    made = prepared.made
    if caches.stacked is not None:
        made.append(_stacked(target, caches.stacked, k, v))
    if results.y is None and results.scores is None:
        return made
    bias = added.bias
    if added.mask is not None:
        dispatch, bias = lower_mask(target, s, added.mask, bias, caches.length)
        made.append(dispatch)
    reach = Reach(-1, 0, s.past) if s.causal else Reach()
    sizes = (s.batch, s.heads, s.queries, s.present, s.size, s.v_size)
    y, y_view = results.y if results.y is not None else (q, q_view)
    form = AttentionForm(sizes, q_view, k_view, v_view, y_view, s.factor(), True, reach=reach)
    tensors = AttentionTensors(q, k, v, y, bias, prepared.lengths.lengths)
    if results.y is not None:
        made += attend_on_gpu(target, form, tensors)
    if results.scores is not None:
        made += output_scores(target, form, tensors, results.scores, False, lowest(results.scores.type.dtype))
    return made


class _Prepared:
    """Builder of the dispatches that prepare queries, keys and values."""

    def __init__(self, target: Target, s: MaskedHeads, caches: Caches) -> None:
        self.target, self.sizes, self.in_place = target, s, caches.in_place
        self.made: list[Dispatch] = []
        self.lengths = Lengths(s.past)
        if caches.length is not None:
            keys = scratch(DType.INT32, s.batch)
            code = "return load_past_length(0u) + i32(params.new_rows);"
            sources = [Source("past_length", caches.length)]
            self.made.append(gather_map(target, "attention_lengths", keys, sources, code, {"new_rows": s.new}))
            self.lengths = Lengths(lengths=keys)

    def queries(self, rows: Rows, turn: Turn | None) -> tuple[Operand, HeadView]:
        """Return the queries with bias and rotation applied; the input itself where there is neither."""
        s = self.sizes
        if rows.bias is None and turn is None:
            return rows.operand, rows.view
        y = scratch(DType.FLOAT, s.batch, s.heads, s.queries, s.size)
        how = Append(lengths=self.lengths, turn=turn, bias=rows.bias)
        self.made += append(self.target, y, rows.operand, rows.view, s.queries, s.size, how)
        return y, HeadView.of(y)

    def cached(self, rows: Rows, cache: Cache, size: int, turn: Turn | None = None) -> tuple[Operand, HeadView]:
        """Return past and new keys or values, with bias and rotation applied; the input itself if there are none."""
        s, y = self.sizes, cache.present
        if rows.bias is None and turn is None and not cache.is_used:
            return rows.operand, rows.view
        if y is None:
            y = scratch(cache.stored or rows.operand.type.dtype, s.batch, s.heads, s.present, size)
        past = None if self.in_place else cache.past
        how = Append(True, past, cache.past_heads, self.lengths, turn, rows.bias, into=self.in_place)
        self.made += append(self.target, y, rows.operand, rows.view, s.new, size, how)
        return y, HeadView.of(y)


def _stacked(target: Target, y: Operand, k: Operand, v: Operand) -> Dispatch:
    """Return the dispatch that writes k and v to y [2, B, H, T, D]."""
    unit = Unit.widest(y.type.dtype, k.type.size)
    code = f"""if (i < params.half) {{ return {unit.load}_k(i); }}
  return {unit.load}_v(i - params.half);"""
    values = {"half": k.type.size // unit.width}
    return move(target, "attention_together", unit, y, {"k": k, "v": v}, code, values)

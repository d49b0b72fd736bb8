"""What MultiHeadAttention, Attention and similar operators share: additive masks of five forms, caches, one attention.

A key padding mask of 0 adds `filter` to the scores, it does not hide: a query whose every key is masked sees all. Its
forms: [B]: how many keys count; [2B]: where they end, then where they begin; [3B + 2]: their number first, then offsets
that say nothing more; [B, T]; [B, S, T]; [B, 1, M, M], a mask of all positions of which the rows of the queries count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Operand, Source, Target, Unit, gather_map, move, scratch
from pyruntime.kernels.attention.append import Append, Lengths, Turn, append
from pyruntime.kernels.attention.attention import attend as attend_on_gpu
from pyruntime.kernels.attention.description import AttentionForm, AttentionTensors, HeadView, Reach
from pyruntime.kernels.ir.indexing import broadcast_shapes, broadcast_strides
from pyruntime.ops.base import Op
from pyruntime.ops.microsoft.attention.evaluation import Scores, attend, sees
from pyruntime.ops.microsoft.attention.scores import output_scores

__all__ = [
    "Added",
    "Caches",
    "MaskedHeads",
    "Results",
    "Rows",
    "attend_masked",
    "check_bias",
    "check_mask",
    "filter_of",
    "lower_masked",
    "lowest",
]


@dataclass(frozen=True, slots=True)
class MaskedHeads:
    """Sizes: `new` keys follow `past` ones.

    Attributes:
        causal: keys behind a query are hidden, the first query being behind the past.
        shared: past is a buffer of `present` rows, of which a number known at run time are keys.
    """

    batch: int
    heads: int
    queries: int
    new: int
    past: int
    size: int
    v_size: int
    scale: float | None
    filter: float
    causal: bool = False
    shared: bool = False

    @property
    def present(self) -> int:
        """Rows of the caches."""
        return self.past if self.shared else self.past + self.new

    def factor(self) -> float:
        """What scores are multiplied by."""
        return self.scale or 1.0 / float(np.sqrt(max(self.size, 1)))


def filter_of(given: float | None) -> float:
    """What the attribute mask_filter_value says, or does not say."""
    return -10000.0 if given is None else given


def lowest(dtype: DType) -> float:
    """The score of a hidden key."""
    return -65504.0 if dtype is DType.FLOAT16 else float(np.finfo(np.float32).min)


def check_mask(op: Op, mask: TensorType | None, s: MaskedHeads) -> None:
    """Raises InvalidGraph where the mask has none of the forms."""
    if mask is None:
        return
    b = s.batch
    forms = [(b,), (2 * b,), (3 * b + 2,)]
    fits = mask.shape in forms or (mask.rank == 2 and mask.shape[0] == b) or mask.rank in (3, 4)
    if mask.rank > 1 and not s.shared:
        fits = mask.shape in ((b, s.present), (b, s.queries, s.present))
        fits = fits or (mask.rank == 4 and mask.shape[:2] == (b, 1) and min(mask.shape[2:]) >= s.present)
    if not fits or mask.dtype is not DType.INT32:
        op.fail(f"an int32 mask of [{b}], [{3 * b + 2}], [{b}, {s.present}] or [{b}, {s.queries}, {s.present}]", mask)


def check_bias(op: Op, bias: TensorType | None, s: MaskedHeads) -> None:
    """Raises InvalidGraph where attention_bias does not broadcast to the scores."""
    if bias is None:
        return
    full = (s.batch, s.heads, s.queries)
    fits = bias.rank == 4 and bias.shape[0] in (1, full[0]) and bias.shape[1] in (1, full[1])
    if not fits or bias.shape[2] != s.queries or (bias.shape[3] != s.present and not s.shared):
        op.fail(f"attention_bias of shape [{s.batch} or 1, {s.heads} or 1, {s.queries}, {s.present}]", bias)


def _mask_array(mask: Array, s: MaskedHeads, past: int, total: int) -> Array:
    """What the mask adds, [B, 1, S or 1, total]."""
    b, wide = s.batch, np.float32
    keys = np.arange(total)
    if mask.ndim == 1:
        end = mask[:b, None]
        begin = mask[b : 2 * b, None] if mask.size == 2 * b else np.zeros_like(end)
        kept = ((keys < end) & (keys >= begin))[:, None, None]
    elif mask.ndim == 2:
        kept = mask[:, None, None, :total] != 0
    elif mask.ndim == 3:
        kept = mask[:, None, :, :total] != 0
    else:
        kept = mask[:, :, past : past + s.queries, :total] != 0
    made: Array = np.where(kept, wide(0), wide(s.filter))
    return made


def attend_masked(
    s: MaskedHeads,
    qkv: Sequence[Array],
    past: Sequence[Array | None],
    mask: Array | None,
    bias: Array | None,
    past_length: int | None = None,
) -> tuple[Array, Array, Array, Scores]:
    """y [B, H, S, E], the caches behind it, and the scores; q, k and v are float32 [B, H, rows, components]."""
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
    added = None if mask is None else _mask_array(mask, s, before, total)
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
    """Rows of heads in a tensor: [B, heads, rows, size] as `view`; `bias`: what is added, as `Append` has it."""

    operand: Operand
    view: HeadView
    bias: tuple[Operand, int] | None = None


@dataclass(frozen=True, slots=True)
class Caches:
    """Past keys and values, and where the caches behind them go (None: nowhere)."""

    past: tuple[Operand | None, Operand | None] = (None, None)
    present: tuple[Operand | None, Operand | None] = (None, None)
    length: Operand | None = None
    """int32 [1], the keys of a shared buffer."""
    together: bool = False
    """Past is one tensor [2, B, H, P, D], keys first, and so is `present[0]`."""
    in_room: bool = False
    """The caches are memory with room, where the past rows are already."""


@dataclass(frozen=True, slots=True)
class Added:
    """What is added to the scores: a key padding mask, attention_bias, or neither."""

    mask: Operand | None = None
    bias: Operand | None = None


@dataclass(frozen=True, slots=True)
class Results:
    """Where the attention, as `HeadView` says, and its scores go; None where they are not wanted."""

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
    """The dispatches of `attend_masked`."""
    made: list[Dispatch] = []
    places = _places(target, s, caches.length, made)
    parts = [
        _ready(target, s, (i, rows), caches, (places, turn if i < 2 else None), made) for i, rows in enumerate(qkv)
    ]
    (q, q_view), (k, k_view), (v, v_view) = parts
    if caches.together and caches.present[0] is not None:
        made.append(_together(target, caches.present[0], k, v))
    if results.y is None and results.scores is None:
        return made
    bias = added.bias
    if added.mask is not None:
        more, bias = _bias_of(target, s, added.mask, bias, caches.length)
        made.append(more)
    reach = Reach(-1, 0, s.past) if s.causal else Reach()
    sizes = (s.batch, s.heads, s.queries, s.present, s.size, s.v_size)
    y, y_view = results.y if results.y is not None else (q, q_view)
    form = AttentionForm(sizes, q_view, k_view, v_view, y_view, s.factor(), True, reach=reach)
    tensors = AttentionTensors(q, k, v, y, bias, places.lengths)
    if results.y is not None:
        made += attend_on_gpu(target, form, tensors)
    if results.scores is not None:
        made += output_scores(target, form, tensors, results.scores, False, lowest(results.scores.type.dtype))
    return made


def _places(target: Target, s: MaskedHeads, past: Operand | None, made: list[Dispatch]) -> Lengths:
    """Where new rows begin; `past`: how many keys of a shared buffer there are."""
    if past is None:
        return Lengths(s.past)
    lengths = scratch(DType.INT32, s.batch)
    code = "return load_past_length(0u) + i32(params.new_rows);"
    values = {"new_rows": s.new}
    source = [Source("past_length", past)]
    made.append(gather_map(target, "attention_lengths", lengths, source, code, values))
    return Lengths(lengths=lengths)


def _ready(
    target: Target,
    s: MaskedHeads,
    part: tuple[int, Rows],
    caches: Caches,
    how: tuple[Lengths, Turn | None],
    made: list[Dispatch],
) -> tuple[Operand, HeadView]:
    """Query, key or value (`part`: 0, 1 or 2) as attention reads it, in its cache where there is one."""
    (i, rows), (places, turn) = part, how
    past = caches.past[i - 1] if i else None
    y = caches.present[i - 1] if i and not caches.together else None
    wanted = i > 0 and caches.present[0 if caches.together else i - 1] is not None
    if rows.bias is None and turn is None and past is None and not wanted:
        return rows.operand, rows.view
    size = s.v_size if i == 2 else s.size
    count, length = (s.new, s.present) if i else (s.queries, s.queries)
    if y is None:
        stored = rows.operand.type.dtype if i else DType.FLOAT
        if wanted and caches.present[0] is not None:
            stored = caches.present[0].type.dtype  # `_together` copies what is stored
        y = scratch(stored, s.batch, s.heads, length, size)
    skipped = s.batch * s.heads if caches.together and i == 2 else 0
    in_room = caches.in_room and i > 0
    append_to = Append(i > 0, None if in_room else past, skipped, places, turn, rows.bias, into=in_room)
    made += append(target, y, rows.operand, rows.view, count, size, append_to)
    return y, HeadView.of(y)


def _together(target: Target, y: Operand, k: Operand, v: Operand) -> Dispatch:
    """y [2, B, H, T, D] := k and v."""
    unit = Unit.widest(y.type.dtype, k.type.size)
    code = f"""if (i < params.half) {{ return {unit.load}_k(i); }}
  return {unit.load}_v(i - params.half);"""
    values = {"half": k.type.size // unit.width}
    return move(target, "attention_together", unit, y, {"k": k, "v": v}, code, values)


def _bias_of(
    target: Target, s: MaskedHeads, mask: Operand, bias: Operand | None, past_length: Operand | None
) -> tuple[Dispatch, Operand]:
    """What mask and attention_bias add together, float32 and broadcast as far as they are."""
    shape, rank = mask.type.shape, mask.type.rank
    whole: tuple[int, ...] = (s.batch, 1, s.queries if rank > 2 else 1, s.present)
    if bias is not None:
        whole = broadcast_shapes(whole, (*bias.type.shape[:3], s.present))
    y = scratch(DType.FLOAT, *whole)
    has_begins = shape == (2 * s.batch,)
    sources = [Source("mask", mask)]
    if past_length is not None:
        sources.append(Source("past_length", past_length))
    strides: tuple[int, ...] = ()
    if bias is not None:
        sources.append(Source("bias", bias))
        strides = broadcast_strides(bias.type.shape, (*whole[:3], bias.type.shape[3]))
    values: dict[str, Any] = {
        "strides": strides,
        "total": s.present,
        "rows": whole[2],
        "heads": whole[1],
        "batch": s.batch,
        "past_rows": s.past,
        "width": shape[-1],
        "mask_rows": shape[-2] if rank > 2 else 1,
        "bias_width": bias.type.shape[3] if bias is not None else 1,
        "masked": s.filter,
    }
    name = f"attention_mask_{rank}" + "_ends" * has_begins + "_bias" * (bias is not None)
    name += "_shared" * (past_length is not None)
    code = _bias_code(rank, has_begins, bias is not None, past_length is not None)
    return gather_map(target, name, y, sources, code, values), y


def _bias_code(rank: int, has_begins: bool, has_bias: bool, is_shared: bool) -> str:
    """WGSL that returns element i of what mask and bias add; `rank`: of the mask."""
    lines = [
        "let j = i % params.total;",
        "let m = (i / params.total) % params.rows;",
        "let h = (i / (params.total * params.rows)) % params.heads;",
        "let b = i / (params.total * params.rows * params.heads);",
        "var past = params.past_rows;",
    ]
    if is_shared:
        lines.append("past = u32(load_past_length(0u));")
    kept = {
        1: "i32(j) < load_mask(b)" + (" && i32(j) >= load_mask(params.batch + b)" if has_begins else ""),
        2: "j < params.width && load_mask(b * params.width + min(j, params.width - 1u)) != 0",
        3: "j < params.width && load_mask((b * params.mask_rows + m) * params.width + min(j, params.width - 1u)) != 0",
        4: "load_mask((b * params.mask_rows + min(past + m, params.mask_rows - 1u)) * params.width"
        " + min(j, params.width - 1u)) != 0",
    }[rank]
    lines.append(f"let added = select(params.masked, 0.0, {kept});")
    if has_bias:
        lines.append("let column = min(j, params.bias_width - 1u);")
        lines.append("return added + load_bias(dot(vec4<u32>(b, h, m, column), params.strides));")
    else:
        lines.append("return added;")
    return "\n  ".join(lines)

"""Key padding masks of MultiHeadAttention, Attention and similar operators: supported forms, and the resulting bias.

A mask is int32. It adds `filter` to the score of a masked key and does not hide the key: a query with all keys masked
sees all of them. Source: onnxruntime, operators Attention and MultiHeadAttention of com.microsoft.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Operand, Source, Target, gather_map, scratch
from pyruntime.kernels.ir.indexing import broadcast_shapes, broadcast_strides
from pyruntime.ops.base import Op

__all__ = ["MaskedHeads", "check_bias", "check_mask", "filter_of", "lower_mask", "lowest", "mask_array"]


@dataclass(frozen=True, slots=True)
class MaskedHeads:
    """Sizes of an attention whose `new` keys follow `past` keys.

    Attributes:
        causal: a query sees no later key; the first query follows the past.
        shared: past is a buffer of `present` rows, of which the number of valid ones is known at run time.
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
        """Return the scale of the scores."""
        return self.scale or 1.0 / math.sqrt(max(self.size, 1))


@dataclass(frozen=True, slots=True)
class _Form:
    """A form of key padding mask.

    Attributes:
        name: used in kernel names.
        kept: (mask, number of keys, slice of the queries' positions) -> bool [B, 1, S or 1, keys], true for unmasked
            keys.
        code: WGSL condition, true where key j is unmasked for query m of batch entry b.
        by_query: the mask differs between queries.
    """

    name: str
    kept: Callable[[Array, int, slice], Array]
    code: str
    by_query: bool = False


def _between(begins: Array | int, ends: Array, keys: int) -> Array:
    numbers = np.arange(keys)
    return np.asarray((numbers < ends) & (numbers >= begins))[:, None, None]


_COLUMN = "j < params.width && load_mask({row} * params.width + min(j, params.width - 1u)) != 0"

_LENGTHS = _Form("1", lambda mask, keys, _: _between(0, mask[:, None], keys), "i32(j) < load_mask(b)")
"""[B]: number of keys of each entry; or [3B + 2]: these numbers, followed by redundant offsets."""
_RANGES = _Form(
    "1_ends",
    lambda mask, keys, _: _between(mask[len(mask) // 2 :, None], mask[: len(mask) // 2, None], keys),
    "i32(j) < load_mask(b) && i32(j) >= load_mask(params.batch + b)",
)
"""[2B]: ends of the key ranges of all entries, then their starts."""
_KEYS = _Form("2", lambda mask, keys, _: mask[:, None, None, :keys] != 0, _COLUMN.format(row="b"))
"""[B, T]: 0 for a masked key."""
_QUERIES = _Form(
    "3", lambda mask, keys, _: mask[:, None, :, :keys] != 0, _COLUMN.format(row="(b * params.mask_rows + m)"), True
)
"""[B, S, T]: 0 for a key masked for a query."""
_POSITIONS = _Form(
    "4",
    lambda mask, keys, positions: mask[:, :, positions, :keys] != 0,
    _COLUMN.format(row="(b * params.mask_rows + min(past + m, params.mask_rows - 1u))"),
    True,
)
"""[B, 1, M, M]: the same for all positions; the rows of the queries' positions are used."""


def _form_of(shape: tuple[int, ...], batch: int) -> _Form:
    if len(shape) == 1:
        return _RANGES if shape == (2 * batch,) else _LENGTHS
    return {2: _KEYS, 3: _QUERIES, 4: _POSITIONS}[len(shape)]


def filter_of(value: float | None) -> float:
    """Return the value of attribute mask_filter_value, or its default."""
    return -10000.0 if value is None else value


def lowest(dtype: DType) -> float:
    """Return the score of a hidden key."""
    return -65504.0 if dtype is DType.FLOAT16 else float(np.finfo(np.float32).min)


def check_mask(op: Op, mask: TensorType | None, s: MaskedHeads) -> None:
    """Raise InvalidGraph where the mask has none of the supported forms."""
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
    """Raise InvalidGraph where attention_bias does not broadcast to the scores."""
    if bias is None:
        return
    fits = bias.rank == 4 and bias.shape[0] in (1, s.batch) and bias.shape[1] in (1, s.heads)
    if not fits or bias.shape[2] != s.queries or (bias.shape[3] != s.present and not s.shared):
        op.fail(f"attention_bias of shape [{s.batch} or 1, {s.heads} or 1, {s.queries}, {s.present}]", bias)


def mask_array(mask: Array, s: MaskedHeads, past: int, keys: int) -> Array:
    """Return the bias of a mask, float32 [B, 1, S or 1, keys]; `past` is the number of keys before the queries."""
    if mask.shape == (3 * s.batch + 2,):
        mask = mask[: s.batch]
    kept = _form_of(mask.shape, s.batch).kept(mask, keys, slice(past, past + s.queries))
    made: Array = np.where(kept, np.float32(0), np.float32(s.filter))
    return made


def lower_mask(
    target: Target, s: MaskedHeads, mask: Operand, bias: Operand | None, past_length: Operand | None
) -> tuple[Dispatch, Operand]:
    """Return the dispatch that computes mask + attention_bias, and its float32 result, which broadcasts to the scores.

    Args:
        past_length: int32 [1], number of valid keys of a shared buffer.
    """
    shape, form = mask.type.shape, _form_of(mask.type.shape, s.batch)
    whole: tuple[int, ...] = (s.batch, 1, s.queries if form.by_query else 1, s.present)
    if bias is not None:
        whole = broadcast_shapes(whole, (*bias.type.shape[:3], s.present))
    y = scratch(DType.FLOAT, *whole)
    values: dict[str, Any] = {
        "total": s.present,
        "rows": whole[2],
        "heads": whole[1],
        "batch": s.batch,
        "past_rows": s.past,
        "width": shape[-1],
        "mask_rows": shape[-2] if form.by_query else 1,
        "masked": s.filter,
    }
    lines = [
        "let j = i % params.total;",
        "let m = (i / params.total) % params.rows;",
        "let h = (i / (params.total * params.rows)) % params.heads;",
        "let b = i / (params.total * params.rows * params.heads);",
        f"let past = {'params.past_rows' if past_length is None else 'u32(load_past_length(0u))'};",
        f"let added = select(params.masked, 0.0, {form.code});",
    ]
    sources, name = [Source("mask", mask)], f"attention_mask_{form.name}"
    if past_length is not None:
        sources.append(Source("past_length", past_length))
        name += "_shared"
    if bias is None:
        lines.append("return added;")
    else:
        sources.append(Source("bias", bias))
        name += "_bias"
        columns = bias.type.shape[3]
        values |= {"strides": broadcast_strides(bias.type.shape, (*whole[:3], columns)), "bias_width": columns}
        lines.append("let column = min(j, params.bias_width - 1u);")
        lines.append("return added + load_bias(dot(vec4<u32>(b, h, m, column), params.strides));")
    return gather_map(target, name, y, sources, "\n  ".join(lines), values), y

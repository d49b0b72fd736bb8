"""DecoderMaskedMultiHeadAttention: attention of one token over its cache, with beam search.

Source: com.microsoft operator DecoderMaskedMultiHeadAttention.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.errors import RuntimeException
from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Source, Target, gather_map, inp, out
from pyruntime.ops.base import Op, op
from pyruntime.ops.decomposed import Decomposed, Expansion
from pyruntime.ops.microsoft.attention.multi_head_attention import MultiHeadAttention
from pyruntime.ops.operands import named
from pyruntime.ops.registry import newest


@op("DecoderMaskedMultiHeadAttention", opsets=range(1, 2), domain="com.microsoft")
class DecoderMaskedMultiHeadAttention(Decomposed):
    """y = softmax(scale · (q + bias_q) (k + bias_k)ᵀ + mask + attention_bias) (v + bias_v), with one query per head.

    Self-attention: query, key and value are [B, 1, H·D], or packed in query. The new row is appended to past_key and
    past_value [B, H, P, D]; with past_present_share_buffer it is stored into these buffers at past_sequence_length,
    int32 [1]. Cross-attention: key and value are [B, H, T, D], without past, and bias applies to the query only.
    mask_index: int32 [B, T], 0 adds `mask_filter_value`; attention_bias: [B or 1, H or 1, 1, T]; bias: [3·H·D].

    Beam search needs shared buffers and cache_indirection, int32 [B / W, W, P], for beam_width W > 1: entry b reads
    past row j from the cache of beam cache_indirection[b / W, b % W, j] of its group. The present outputs are not
    reordered. (onnxruntime's CPU provider then adds the attention_bias of entry b / W to entry b; this operator uses
    that of b.)

    Outputs: y [B, 1, H·D], present_key, present_value, and qk [B, H, 1, T], the input of the softmax. The caches have
    the layout of onnxruntime's CPU provider.

    Expands to MultiHeadAttention; with beams, to one for y over reordered caches and one for the present outputs.
    """

    operands = named(
        "query",
        optional="key value mask_index attention_bias past_key past_value past_sequence_length"
        " beam_width cache_indirection bias",
    )

    mask_filter_value: float | None = None
    num_heads: int
    output_qk: int | None = None
    past_present_share_buffer: int | None = None
    scale: float | None = None

    def expand(self, body: Expansion, *inputs: Any) -> tuple[TensorType | None, ...]:
        given = self.operands(*inputs)
        query, key, value, mask_index = given.query, given.key, given.value, given.mask_index
        past_key, past_value, indirection = given.past_key, given.past_value, given.cache_indirection
        if query.rank != 3 or query.shape[1] != 1 or self.num_heads <= 0:
            self.fail("a query [batch, 1, hidden] and num_heads > 0", query)
        cross = key is not None and key.rank == 4
        shared = bool(self.past_present_share_buffer) and not cross
        rows = given.past_sequence_length if shared else None
        if mask_index is not None and mask_index.rank != 2:
            self.fail("no mask_index, or one of [batch, keys]", mask_index)
        self._check_past(key, past_key, past_value, rows)
        beams = self._beams(query, past_key if shared else None, given.beam_width, indirection)
        if key is None:
            query, key, value = self._split(body, query, past_key)
        if not cross and (value is None or not key.shape == value.shape == query.shape):
            self.fail("key and value of the query's shape, or of rank 4", f"{key}, {value}")
        if cross and (value is None or key.shape != value.shape):
            self.fail("key and value of one shape", f"{key}, {value}")

        def attend(present: tuple[bool, ...], *caches: TensorType | None) -> tuple[Any, ...]:
            made = MultiHeadAttention(
                mask_filter_value=self.mask_filter_value, num_heads=self.num_heads, scale=self.scale, present=present
            )
            return body.apply(made, query, key, value, given.bias, mask_index, given.attention_bias, *caches, rows)

        wanted = tuple(self.wants(i) for i in range(4))
        if beams == 1:
            made = attend(wanted, past_key, past_value)
            return tuple(y if w else None for y, w in zip(made, wanted, strict=False))
        ordered = [body.apply(_OfBeams(), x, indirection, rows)[0] for x in (past_key, past_value)]
        found = attend((True, False, False, wanted[3]), *ordered)
        kept = attend((False, *wanted[1:3]), past_key, past_value) if wanted[1] or wanted[2] else (None,) * 3
        made = (found[0], kept[1], kept[2], *found[3:])
        return tuple(y if w else None for y, w in zip(made, wanted, strict=False))

    def _check_past(
        self,
        key: TensorType | None,
        past_key: TensorType | None,
        past_value: TensorType | None,
        length: TensorType | None,
    ) -> None:
        cross = key is not None and key.rank == 4
        if cross and (past_key is not None or past_value is not None):
            self.fail("no past_key and past_value for a key of rank 4, of cross attention", f"{past_key}, {past_value}")
        if not cross and self.past_present_share_buffer and (past_key is None or length is None or length.size != 1):
            self.fail("past_key, past_value and one past_sequence_length with past_present_share_buffer", length)
        if past_key is None and past_value is None:
            return
        if past_key is None or past_value is None or past_key.shape != past_value.shape or past_key.rank != 4:
            self.fail("past_key and past_value of one shape [batch, heads, rows, size]", f"{past_key}, {past_value}")
        if length is not None and length.is_known and not 0 <= length.ints()[0] < past_key.shape[2]:
            self.fail(f"past_sequence_length in [0, {past_key.shape[2]})", length.ints()[0])

    def _beams(
        self,
        query: TensorType,
        buffer: TensorType | None,
        width: TensorType | None,
        indirection: TensorType | None,
    ) -> int:
        """Return the number of beams. Raises InvalidGraph if the inputs do not match."""
        beams = 1
        if indirection is not None:
            if indirection.rank != 3 or indirection.dtype is not DType.INT32:
                self.fail("an int32 cache_indirection [batch / beams, beams, rows]", indirection)
            beams = indirection.shape[1]
        if beams > 1 and indirection is not None:
            if buffer is None:
                self.fail("past_present_share_buffer 1 with cache_indirection of several beams", "0, or no past")
            if width is None or indirection.shape[0] * beams != query.shape[0]:
                self.fail(f"beam_width, and cache_indirection of [{query.shape[0]} / beams, beams, rows]", indirection)
            if indirection.shape[2] != buffer.shape[2]:
                self.fail(f"cache_indirection of {buffer.shape[2]} rows, as the caches have", indirection)
        if width is not None and width.is_known and width.size and width.ints()[0] != beams:
            self.fail(f"beam_width {beams}, as cache_indirection has (1 without it)", width.ints()[0])
        return int(beams)

    def _split(self, body: Expansion, query: TensorType, past_key: TensorType | None) -> tuple[Any, Any, Any]:
        """Split a packed query into query, key and value."""
        hidden = query.shape[2] // 3 if past_key is None else self.num_heads * past_key.shape[3]
        if query.shape[2] != 3 * hidden:
            self.fail(f"a key, or a packed query of width {3 * hidden}", query)
        parts = body.apply(newest("Split", axis=2, present=(True,) * 3), query, body.ints(hidden, hidden, hidden))
        return parts[0], parts[1], parts[2]


@op("CachesOfBeams", opsets=range(1, 2), domain="pyruntime")
class _OfBeams(Op):
    """y[b, h, j] = past[b - b % W + beams[b, j], h, j]; past: [B, H, P, D], beams: int32 [B / W, W, P].

    Rows from `length` (int32 [1]) on are undefined.
    """

    def infer(self, past: TensorType, beams: TensorType, length: TensorType) -> tuple[TensorType, ...]:
        return (TensorType(past.dtype, past.shape),)

    def evaluate(self, past: Array, beams: Array, length: Array) -> tuple[Array, ...]:
        batch, _, rows, _ = past.shape
        width = beams.shape[1]
        chosen = beams.reshape(batch, rows)
        known = chosen[:, : int(length.reshape(-1)[0])]
        outside = known[(known < 0) | (known >= width)]
        if outside.size:
            raise RuntimeException(f"cache_indirection: expected beams in [0, {width}), got {int(outside[0])}")
        first = np.arange(batch)[:, None] // width * width
        source = first + np.clip(chosen, 0, width - 1)
        made = past.swapaxes(1, 2)[source, np.arange(rows)]
        return (np.ascontiguousarray(made.swapaxes(1, 2)),)

    def lower(self, target: Target, past: TensorType, beams: TensorType, length: TensorType) -> tuple[Dispatch, ...]:
        _, heads, rows, size = past.shape
        code = """let j = i / params.dim % params.rows;
  let b = i / (params.dim * params.rows * params.heads);
  let beam = u32(clamp(load_beams(b * params.rows + j), 0, i32(params.width) - 1));
  let source = b - b % params.width + beam;
  return load_past(i + source * params.entry - b * params.entry);"""
        values = {
            "dim": size,
            "rows": rows,
            "heads": heads,
            "width": beams.shape[1],
            "entry": heads * rows * size,
        }
        sources = [Source("past", inp(0, past)), Source("beams", inp(1, beams))]
        return (gather_map(target, "caches_of_beams", out(0, past), sources, code, values),)

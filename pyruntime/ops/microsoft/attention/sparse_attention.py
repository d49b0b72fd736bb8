"""SparseAttention: causal block-sparse attention with a KV cache.

Source: com.microsoft operator SparseAttention; Phi-3-small (arXiv 2404.14219).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.errors import RuntimeException
from pyruntime.ir import Array, DType, TensorType, has_dims
from pyruntime.kernels import Dispatch, Source, Target, gather_map, inp, out
from pyruntime.ops.base import Op, Unsupported, op
from pyruntime.ops.decomposed import Decomposed, Expansion
from pyruntime.ops.microsoft.attention.group_query_attention import GroupQueryAttention
from pyruntime.ops.operands import named

_LARGEST = 1 << 25
"""Largest number of mask elements on the GPU."""


@op("SparseAttention", opsets=range(1, 2), domain="com.microsoft")
class SparseAttention(Decomposed):
    """y = softmax(scale · q kᵀ) v over keys up to the query's position that the block layout of its head selects.

    query: [B, S, H·D], key and value: [B, S, G·D], or all packed along the last axis of query. past_key, past_value:
    [B, G, M, D], into which the new rows are stored. The block layouts have blocks of `sparse_block_size` positions in
    CSR format: block_row_indices int32 [L, N + 1], block_col_indices int32 [L, n]. Head h uses layout h % L, in which
    block row r sees the blocks block_col_indices[block_row_indices[r] .. block_row_indices[r + 1]].
    key_total_sequence_lengths: int32 [B], keys of each entry including new ones; total_sequence_length: one int32,
    their maximum. If it equals S (a first prompt), queries start at position 0; otherwise they are the last keys of
    their entry. With `do_rotary`, query and key are rotated by cos_cache, sin_cache [positions, R / 2]. Outputs: y [B,
    S, H·D] and the caches.

    A query without visible keys weights all keys up to its position equally (float16: by their scores). For entries
    shorter than total_sequence_length, onnxruntime's CPU provider mixes up rows of scores; this operator computes each
    entry as if alone. Expands to GroupQueryAttention with the layout as an additive mask.
    """

    operands = named(
        "query key? value? past_key past_value block_row_indices block_col_indices"
        " total_sequence_length key_total_sequence_lengths",
        optional="cos_cache sin_cache",
    )

    do_rotary: int | None = None
    kv_num_heads: int
    num_heads: int
    rotary_interleaved: int | None = None
    scale: float | None = None
    sparse_block_size: int

    def expand(self, body: Expansion, *inputs: Any) -> tuple[TensorType | None, ...]:
        query, key, value, past_key, past_value, rows, columns, total, lengths, *tables = self.operands(*inputs)
        if query.rank != 3 or past_key.rank != 4:
            self.fail("a query of rank 3 with past_key and past_value of rank 4", f"{query}, {past_key}")
        self._check(query.shape[0], past_key, rows, columns, total, lengths)
        mask = _BlockMask(
            to=query.dtype.code,
            heads=self.num_heads,
            block=self.sparse_block_size,
            queries=query.shape[1],
            keys=past_key.shape[2],
        )
        (bias,) = body.apply(mask, rows, columns, lengths, total)
        one = body.constant(np.array([1], np.int32), DType.INT32)
        last = body("Sub", body("Reshape", lengths, body.ints(query.shape[0])), one)
        attention = GroupQueryAttention(
            do_rotary=self.do_rotary,
            kv_num_heads=self.kv_num_heads,
            num_heads=self.num_heads,
            rotary_interleaved=self.rotary_interleaved,
            scale=self.scale,
            present=(True, self.wants(1), self.wants(2)),
        )
        turn = tables if self.do_rotary else (None, None)
        return body.apply(attention, query, key, value, past_key, past_value, last, total, *turn, None, bias)

    def _check(
        self,
        batch: int,
        past_key: TensorType,
        rows: TensorType,
        columns: TensorType,
        total: TensorType,
        lengths: TensorType,
    ) -> None:
        if any(x.dtype is not DType.INT32 for x in (rows, columns, total, lengths)):
            self.fail("int32 indices of blocks and lengths", f"{rows}, {columns}, {total}, {lengths}")
        if self.sparse_block_size < 1 or rows.rank != 2 or columns.rank != 2 or rows.shape[0] != columns.shape[0]:
            self.fail(
                "sparse_block_size > 0, block_row_indices and block_col_indices [layouts, ·]", f"{rows}, {columns}"
            )
        if rows.shape[0] < 1 or rows.shape[1] < 2 or self.num_heads % rows.shape[0] or not columns.shape[1]:
            self.fail(f"layouts of which {self.num_heads} heads are a multiple", f"{rows}, {columns}")
        if total.size != 1 or lengths.shape != (batch,) or past_key.shape[2] < 1:
            self.fail(f"one total_sequence_length, {batch} key_total_sequence_lengths, rows", f"{total}, {lengths}")
        most = min((rows.shape[1] - 1) * self.sparse_block_size, past_key.shape[2])
        if total.is_known and not 0 < total.ints()[0] <= most:
            self.fail(f"a total_sequence_length of 1 to {most}, the capacity of layout and caches", total.ints()[0])


@op("BlockMask", opsets=range(1, 2), domain="pyruntime")
class _BlockMask(Op):
    """y [B, heads or 1, queries, keys]: 0 where the block layout lets a query see a key, else a large negative number.

    rows: int32 [L, N + 1], columns: int32 [L, n], lengths: int32 [B], total: one int32, as in SparseAttention.
    """

    to: int
    heads: int
    block: int
    queries: Any
    keys: Any

    @property
    def dtype(self) -> DType:
        """Element type of y."""
        return DType.from_code(self.to)

    @property
    def hidden(self) -> float:
        """Bias of hidden keys: large enough that their weights round to 0 in float32."""
        return -65504.0 if self.dtype is DType.FLOAT16 else -1e30

    def infer(
        self, rows: TensorType, columns: TensorType, lengths: TensorType, total: TensorType
    ) -> tuple[TensorType, ...]:
        heads = 1 if rows.shape[0] == 1 else self.heads
        return (TensorType(self.dtype, (lengths.shape[0], heads, self.queries, self.keys)),)

    def evaluate(self, rows: Array, columns: Array, lengths: Array, total: Array) -> tuple[Array, ...]:
        layouts, blocks = rows.shape[0], rows.shape[1] - 1
        longest = int(total.reshape(-1)[0])
        outside = lengths[(lengths > longest) | (lengths < (1 if longest == self.queries else self.queries))]
        if outside.size:
            raise RuntimeException(
                f"SparseAttention: expected key_total_sequence_lengths of at most {longest} with {self.queries} new "
                f"keys, got {int(outside[0])}"
            )
        shown = np.zeros((layouts, blocks, blocks), bool)
        for layout in range(layouts):
            for r in range(blocks):
                seen = columns[layout, rows[layout, r] : rows[layout, r + 1]]
                shown[layout, r, seen[(seen >= 0) & (seen < blocks)]] = True
        heads = np.arange(1 if layouts == 1 else self.heads) % layouts
        first = np.where(longest == self.queries, 0, lengths - self.queries)
        at = np.clip((first[:, None] + np.arange(self.queries)) // self.block, 0, blocks - 1)
        keys = np.minimum(np.arange(self.keys) // self.block, blocks - 1)
        seen = shown[heads[None, :, None, None], at[:, None, :, None], keys]
        return (np.where(seen, 0, self.hidden).astype(self.dtype.numpy),)

    def lower(
        self, target: Target, rows: TensorType, columns: TensorType, lengths: TensorType, total: TensorType
    ) -> tuple[Dispatch, ...]:
        (y,) = self.infer(rows, columns, lengths, total)
        if not has_dims(y) and y.size > _LARGEST:
            raise Unsupported(f"a block mask of more than {_LARGEST} elements is computed on the host")
        code = """let j = i % params.keys;
  let query = i / params.keys % params.queries;
  let head = i / (params.keys * params.queries) % params.heads;
  let b = i / (params.keys * params.queries * params.heads);
  var first = load_lengths(b) - i32(params.queries);
  if (load_total(0u) == i32(params.queries)) { first = 0; }
  let row = u32(clamp((first + i32(query)) / i32(params.block), 0, i32(params.rows) - 2));
  let shown = head % params.layouts;
  let begin = u32(max(load_rows(shown * params.rows + row), 0));
  let end = min(u32(max(load_rows(shown * params.rows + row + 1u), 0)), params.columns);
  let wanted = i32(min(j / params.block, params.rows - 2u));
  for (var k = begin; k < end; k++) {
    if (load_columns(shown * params.columns + k) == wanted) { return 0.0; }
  }
  return params.hidden;"""
        values: dict[str, Any] = {
            "keys": y.shape[3],
            "queries": y.shape[2],
            "heads": y.shape[1],
            "layouts": rows.shape[0],
            "rows": rows.shape[1],
            "columns": columns.shape[1],
            "block": self.block,
            "hidden": self.hidden,
        }
        given = {"rows": rows, "columns": columns, "lengths": lengths, "total": total}
        sources = [Source(n, inp(i, t)) for i, (n, t) in enumerate(given.items())]
        return (gather_map(target, "attention_block_mask", out(0, y), sources, code, values),)

"""GroupQueryAttention with `sliding_window_cache`, expanded to one with a larger cache.

For a cache of P rows and a window of W, the specification says that after n tokens the cache holds the last

    resident(n) = n                                     if n <= P
                  n - d · ceil((n - P) / d)             otherwise, with d = P - W + 1

rows of the sequence, from row 0 on. The expansion appends the new rows to the resident ones in memory with capacity for
both, attends over all of them, and keeps the last resident(n). Rotary embeddings use positions in the sequence.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pyruntime.ir import DType, TensorType
from pyruntime.ops.decomposed import Expansion
from pyruntime.ops.microsoft.attention.group_query_form import GroupQueryForm, GroupQueryInputs, GroupQuerySizes

__all__ = ["slide"]


def slide(
    attention: GroupQueryForm, body: Expansion, given: GroupQueryInputs[TensorType]
) -> tuple[TensorType | None, ...]:
    """Write the nodes for one sequence, or one token of each, without attention_bias, query_seqlens or output_qk."""
    s = attention.sizes(*given)
    ends = body("Add", body("Reshape", given.seqlens_k, body.ints(s.batch, 1)), _number(body, 1))
    before = body("Sub", ends, _number(body, s.new))
    resident = _resident(attention, s, body, before)
    assert given.past_key is not None and given.past_value is not None
    larger = [_larger(body, x, s.new) for x in (given.past_key, given.past_value)]
    positions = given.position_ids
    if attention.do_rotary and positions is None:
        positions = body.cast(body("Add", before, _count(body, s.queries)), DType.INT64)
    last = body("Add", resident, _number(body, s.new - 1))
    lengths = body("Reshape", last, body.ints(s.batch))
    rows = _number(body, s.past + s.new)
    whole = replace(attention, sliding_window_cache=0, present=(True, True, True))
    inputs = given._replace(
        past_key=larger[0],
        past_value=larger[1],
        seqlens_k=lengths,
        total_sequence_length=rows,
        position_ids=positions,
    )
    y, keys, values = body.apply(whole, *inputs)
    passed = body("Sub", body("Add", last, _number(body, 1)), _resident(attention, s, body, ends))
    at = body("Add", passed, _count(body, s.past))
    at = body("Min", at, _number(body, s.past + s.new - 1))  # later rows are undefined
    return y, *(_rows(body, x, at) for x in (keys, values))


def _rows(body: Expansion, cache: TensorType, at: TensorType) -> TensorType:
    """Gather rows `at` [B, P] of a cache."""
    batch, groups, _, _ = cache.shape
    count = at.shape[1]
    if batch == 1:
        return body("Gather", cache, body("Reshape", at, body.ints(count)), axis=2)
    at = body("Reshape", body.cast(at, DType.INT64), body.ints(batch, 1, count, 1))
    return body("GatherND", cache, body("Expand", at, body.ints(batch, groups, count, 1)), batch_dims=2)


def _count(body: Expansion, count: int) -> TensorType:
    return body.constant(np.arange(count, dtype=np.int32), DType.INT32)


def _number(body: Expansion, value: int) -> TensorType:
    return body.constant(np.array([value], np.int32), DType.INT32)


def _resident(attention: GroupQueryForm, s: GroupQuerySizes, body: Expansion, count: TensorType) -> TensorType:
    """Return the number of resident rows after `count` tokens."""
    spare = s.past - attention.local_window_size + 1
    over = body("Max", body("Sub", count, _number(body, s.past)), _number(body, 0))
    steps = body("Div", body("Add", over, _number(body, spare - 1)), _number(body, spare))
    return body("Sub", count, body("Mul", steps, _number(body, spare)))


def _larger(body: Expansion, cache: TensorType, rows: int) -> TensorType:
    """Append `rows` zero rows to the cache."""
    zero = body.constant(np.zeros((), cache.dtype.numpy), cache.dtype)
    batch, groups, _, width = cache.shape
    return body("Concat", cache, body("Expand", zero, body.ints(batch, groups, rows, width)), axis=2)

"""Concatenated tokens of several requests."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from pyruntime.ir import TensorType
from pyruntime.ops.base import Op
from pyruntime.ops.decomposed import Expansion

__all__ = ["joined", "requests_of", "rows_of"]


def requests_of(op: Op, bounds: TensorType, tokens: int, states: TensorType | None) -> list[tuple[int, int]]:
    """Return the (start, end) of each request, given cumulative lengths [B + 1]. Raises InvalidGraph, ValueNeeded."""
    ends = bounds.ints()
    if bounds.rank != 1 or len(ends) < 2 or ends[0] != 0 or ends[-1] != tokens or list(ends) != sorted(ends):
        op.fail(f"cumulative lengths from 0 to the {tokens} tokens, ascending", list(ends))
    if states is not None and states.shape[0] != len(ends) - 1:
        op.fail(f"states of {len(ends) - 1} requests", states)
    return list(pairwise(ends))


def rows_of(body: Expansion, x: TensorType, begin: int, end: int, axis: int) -> TensorType:
    """Slice rows [begin, end) of an axis."""
    return body("Slice", x, body.ints(begin), body.ints(end), body.ints(axis))


def joined(body: Expansion, parts: Sequence[TensorType], axis: int) -> TensorType:
    """Concatenate tensors along `axis`; a single one is returned as it is."""
    return parts[0] if len(parts) == 1 else body("Concat", *parts, axis=axis)

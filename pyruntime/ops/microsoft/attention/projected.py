"""Attention after an input projection, for Attention and QAttention of com.microsoft.

The columns of the projected tensor [B, S, 2·H·D + H·E] are queries, keys and values. past and present are tensors [2,
B, H, ·, D] with keys first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pyruntime.ir import Array, Constant, TensorType, upper
from pyruntime.kernels import Dispatch, Operand, Target, constant, out
from pyruntime.kernels.attention.append import Turn
from pyruntime.kernels.attention.description import HeadView
from pyruntime.ops.attention.rotary import rotate
from pyruntime.ops.base import Op
from pyruntime.ops.microsoft.attention.evaluation import heads_of, packed
from pyruntime.ops.microsoft.attention.masked import (
    Added,
    Caches,
    Results,
    Rows,
    attend_masked,
    lower_masked,
)
from pyruntime.ops.microsoft.attention.masks import MaskedHeads, check_bias, check_mask, filter_of

__all__ = ["angles", "attend_projected", "check_projected", "lower_projected", "projected_sizes"]


def projected_sizes(
    op: Any, x: TensorType, weights: TensorType, widths: tuple[int, ...], past: TensorType | None, shared: bool
) -> MaskedHeads:
    """Return the sizes of the attention. Raises InvalidGraph."""
    heads = op.num_heads
    if x.rank != 3 or weights.rank != 2 or weights.shape[0] != x.shape[2] or heads <= 0:
        op.fail("an input [B, S, I], weights [I, W] and num_heads > 0", f"{x} and {weights}")
    whole = weights.shape[1]
    q, k, v = widths or (whole // 3,) * 3
    if q + k + v != whole or q != k or q % heads or v % heads:
        op.fail(f"weights of three parts of {heads} heads, the first two equal", f"{weights}, parts {[q, k, v]}")
    batch, queries = x.shape[:2]
    size, v_size = q // heads, v // heads
    rows = past.shape[3] if past is not None and past.rank == 5 else 0
    if past is not None and (past.shape != (2, batch, heads, rows, size) or size != v_size):
        op.fail(f"past of shape {[2, batch, heads, 'P', size]} and values of as many components", past)
    made = (batch, heads, queries, queries, rows, size, v_size, op.scale, filter_of(op.mask_filter_value))
    return MaskedHeads(*made, causal=bool(op.unidirectional), shared=shared)


def check_projected(op: Op, s: MaskedHeads, mask: TensorType | None, bias: TensorType | None) -> None:
    """Raise InvalidGraph where mask, attention_bias or a requested present output do not match the sizes."""
    check_mask(op, mask, s)
    check_bias(op, bias, s)
    if op.wants(1) and s.size != s.v_size:
        op.fail("values of as many components as keys, for a present", f"{s.v_size} and {s.size}")


def angles(rows: int, turning: int) -> tuple[Array, Array]:
    """Return cosines and sines [rows, turning / 2] of the angles position / 10000^(2j / turning).

    A dynamic number of rows counts as the largest of its range; the plan is for this `turning` only.
    """
    rates = 10000.0 ** (-np.arange(0, int(turning), 2) / int(turning))
    whole = np.arange(upper(rows))[:, None] * rates
    return np.cos(whole).astype(np.float32), np.sin(whole).astype(np.float32)


def attend_projected(
    op: Any,
    s: MaskedHeads,
    x: Array,
    kind: Any,
    mask: Array | None,
    past: Array | None,
    bias: Array | None,
    length: Any,
) -> tuple[Array, ...]:
    """Compute y and present from the projected x."""
    qk = s.heads * s.size
    q, k, v = (heads_of(part, s.heads) for part in np.split(x, [qk, 2 * qk], axis=2))
    at = int(length.reshape(-1)[0]) if s.shared and length is not None else None
    if op.do_rotary:
        first = s.past if at is None else at
        positions = np.broadcast_to(first + np.arange(s.queries), (s.batch, s.queries))
        tables = angles(s.present, op.turning(s))
        q, k = (rotate(part, *tables, positions, False) for part in (q, k))
    before = (None, None) if past is None else (past[0], past[1])
    y, keys, values, _ = attend_masked(s, (q, k, v), before, mask, bias, at)
    made = packed(y).astype(kind)
    return (made, np.stack((keys, values)).astype(kind)) if s.size == s.v_size else (made,)


@dataclass(frozen=True, slots=True)
class Others:
    """Further inputs of the attention; None if absent."""

    mask: Operand | None
    past: Operand | None
    bias: Operand | None = None
    length: Operand | None = None


def lower_projected(
    op: Any, target: Target, s: MaskedHeads, x: Operand, outs: tuple[TensorType, ...], others: Others
) -> list[Dispatch]:
    """Return the dispatches of the attention, given the projected x in float32."""
    qk, width = s.heads * s.size, s.heads * (2 * s.size + s.v_size)

    def rows(base: int, size: int) -> Rows:
        return Rows(x, HeadView(base, (s.queries * width, size, width, 1)))

    turn = None
    if op.do_rotary:
        tables = (Constant.from_array(t) for t in angles(s.present, op.turning(s)))
        cosines, sines = map(constant, tables)
        turn = Turn(cosines, sines)
    present = out(1, outs[1]) if op.wants(1) else None
    caches = Caches.stacked_in(others.past, present, s.batch * s.heads, others.length if s.shared else None)
    y = (out(0, outs[0]), HeadView.flat(s.queries, s.heads, s.v_size)) if op.wants(0) else None
    parts = (rows(0, s.size), rows(qk, s.size), rows(2 * qk, s.v_size))
    return lower_masked(target, s, parts, caches, Added(others.mask, others.bias), Results(y), turn)

"""Rows of queries, keys and values made ready for attention: `shaders/attention/attention_append.wgsl`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyruntime.ir import DType
from pyruntime.kernels.attention.description import HeadView
from pyruntime.kernels.ir.dispatch import Dispatch, Operand, scratch
from pyruntime.kernels.ir.launch import launch
from pyruntime.target import Target

__all__ = ["Append", "Lengths", "Quantised", "Turn", "append"]


@dataclass(frozen=True, slots=True)
class Lengths:
    """Where new rows begin: after `first` others; or, with `lengths`, where they are the last of a batch entry's.

    Attributes:
        lengths: int32 [B], the keys of a batch entry less `lacking`.
        prompt: int32 [1]: where it is `queries`, rows begin at 0.
    """

    first: int = 0
    lengths: Operand | None = None
    lacking: int = 0
    prompt: Operand | None = None
    queries: int = 0


@dataclass(frozen=True, slots=True)
class Turn:
    """Rotary embedding: caches of cosines and sines [positions, half]; positions int64 [B, S] or those of the rows."""

    cosines: Operand
    sines: Operand
    positions: Operand | None = None
    interleaved: bool = False


@dataclass(frozen=True, slots=True)
class Quantised:
    """A cache of integers of `bits`: scale is one number, or one for every head and component."""

    scale: Operand
    bits: int
    channels: bool


@dataclass(frozen=True, slots=True)
class Append:
    """What becomes of the rows.

    Attributes:
        placed: they follow those of `past`, into y of as many rows as y has; else y has the new rows alone.
        past_heads: heads of all batch entries before the first in `past`, whose rows are next to last.
        bias: a tensor, and where in it the components of head 0 are, those of all heads in turn.
        norm: the weight of a norm over a head's components, and its epsilon.
        into: with `placed`: the new rows are all of y that is written, the others are there already.
    """

    placed: bool = False
    past: Operand | None = None
    past_heads: int = 0
    lengths: Lengths = Lengths()
    turn: Turn | None = None
    bias: tuple[Operand, int] | None = None
    norm: tuple[Operand, float] | None = None
    quantised: Quantised | None = None
    into: bool = False


def append(
    target: Target, y: Operand, x: Operand, view: HeadView, rows: int, size: int, made: Append
) -> tuple[Dispatch, ...]:
    """y: [B, heads, length, size], of a quantised cache of 4 bits size / 2; x: new rows as `view`, `rows` of a head.

    Uses one scratch tensor where a device binds too few tensors to do all at once.
    """
    bound = _bound(y, x, made)
    ready = made.turn is not None or made.norm is not None or made.bias is not None
    if len(bound) > target.limits.storage_buffers and ready and made.placed:
        between = scratch(DType.FLOAT, *y.type.shape[:2], rows, size)
        turned = Append(lengths=made.lengths, turn=made.turn, bias=made.bias, norm=made.norm)
        placed = Append(True, made.past, made.past_heads, made.lengths, quantised=made.quantised, into=made.into)
        return (
            *append(target, between, x, view, rows, size, turned),
            *append(target, y, between, HeadView.of(between), rows, size, placed),
        )
    turn = made.turn
    flags = _flags(made, bound, size)
    batch, heads, length = y.type.shape[:3]
    groups = -(-size // (8 if flags["NIBBLES"] else 4))
    jobs = batch * heads * (rows if made.into else length) * groups
    angles = turn.cosines.type.shape if turn is not None else (0, 0)
    values = {
        "strides": view.strides,
        "base": view.base,
        "heads": heads,
        "rows": rows,
        "length": length,
        "past_heads": made.past_heads,
        "past_rows": made.past.type.shape[-2] if made.past is not None else 0,
        "size": size,
        "half": angles[1],
        "angle_rows": angles[0],
        "first": made.lengths.first,
        "head_bias": made.bias[1] if made.bias is not None else 0,
        "lacking": made.lengths.lacking,
        "queries": made.lengths.queries,
        "groups": groups,
        "jobs": jobs,
        "epsilon": made.norm[1] if made.norm is not None else 0.0,
    }
    return (launch("attention_append", bound, target.grid(jobs), flags, values),)


def _bound(y: Operand, x: Operand, made: Append) -> dict[str, Operand]:
    """The tensors by the names the shader has for them."""
    turn, at = made.turn, made.lengths
    by_length = made.placed or (turn is not None and turn.positions is None)
    past = made.past if made.past is not None and made.past.type.size else None
    given = {
        "x": x,
        "past": past if made.placed else None,
        "bias": made.bias[0] if made.bias is not None else None,
        "cosines": turn.cosines if turn is not None else None,
        "sines": turn.sines if turn is not None else None,
        "positions": turn.positions if turn is not None else None,
        "weight": made.norm[0] if made.norm is not None else None,
        "lengths": at.lengths if by_length else None,
        "prompt": at.prompt if by_length else None,
        "scale": made.quantised.scale if made.quantised is not None else None,
        "y": y,
    }
    return {name: operand for name, operand in given.items() if operand is not None}


def _flags(made: Append, bound: Mapping[str, Operand], size: int) -> dict[str, Any]:
    """Return the conditions (`//#if`) of `shaders/attention/attention_append.wgsl` for this case."""
    quantised, turn = made.quantised, made.turn
    return {
        "PLACED": made.placed,
        "INTO": made.into,
        "PAST": "past" in bound,
        "LENGTHS": "lengths" in bound,
        "PROMPT": "prompt" in bound,
        "TURN": turn,
        "PAIRS": turn is not None and turn.interleaved,
        "POSITIONS": "positions" in bound,
        "BIAS": made.bias,
        "NORM": made.norm,
        "ODD": quantised is None and size % 4 != 0,
        "QUANTISED": quantised,
        "BITS": quantised.bits if quantised is not None else None,
        "NIBBLES": quantised is not None and quantised.bits == 4,
        "CHANNELS": quantised is not None and quantised.channels,
    }

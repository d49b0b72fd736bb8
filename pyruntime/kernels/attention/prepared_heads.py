"""Rows of queries, keys and values made ready for attention in one dispatch: `shaders/attention/prepare_heads.wgsl`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyruntime.ir import positive
from pyruntime.kernels.attention.append import Lengths
from pyruntime.kernels.attention.description import HeadView
from pyruntime.kernels.ir.dispatch import Dispatch, Operand
from pyruntime.kernels.ir.launch import launch
from pyruntime.target import WORKGROUP, Target

__all__ = ["MOST", "WIDEST", "Rows", "Tables", "prepare_heads"]

MOST = 3
"""Tensors a dispatch makes."""

WIDEST = 4 * WORKGROUP
"""Components of a row, at most: a workgroup has all of them."""


@dataclass(frozen=True, slots=True)
class Tables:
    """Rotary embedding by tables of cosines and sines.

    Attributes:
        half: pairs that turn. interleaved: pairs are (2j, 2j + 1), not (j, j + half). shared: a column for every pair,
            not for every component.
        positions: int64 [B, rows], the row of the tables that each new row has, where rows are placed by lengths;
            None: that of its own position.
    """

    cosines: Operand
    sines: Operand
    half: int
    interleaved: bool
    shared: bool
    positions: Operand | None = None


@dataclass(frozen=True, slots=True)
class Rows:
    """What becomes of one tensor's rows.

    Attributes:
        x, view: where [B, H, rows, D] is; D a multiple of 4, at most 256. y: [B, H, length, D].
        first: rows before the new ones; None: as many as lengths say.
        past: [B, H, P, D], what y has before the new rows; none where y has them already, or there are none.
        weight: [D] of a norm over components. angles: strides of the tables over [B, H, rows, columns]; where rows are
            placed by lengths, positions say which row of the tables it is.
    """

    x: Operand
    view: HeadView
    y: Operand
    rows: Any
    first: Any = 0
    past: Operand | None = None
    weight: Operand | None = None
    angles: tuple[Any, Any, Any, Any] | None = None


def prepare_heads(
    target: Target,
    parts: Sequence[Rows],
    tables: Tables | None,
    epsilon: float,
    into: bool,
    lengths: Lengths | None = None,
) -> tuple[Dispatch, ...]:
    """One dispatch for as many of the parts as the device binds tensors for; it may bind too few even for one.

    Args:
        into: the new rows are all of y that is written, where a part has rows before them.
        lengths: where new rows begin, if batch entries differ in that.
    """
    return tuple(
        _dispatch(target, chunk, tables, epsilon, into, lengths) for chunk in _chunks(target, parts, tables, lengths)
    )


def _chunks(
    target: Target, parts: Sequence[Rows], tables: Tables | None, lengths: Lengths | None
) -> Iterator[list[Rows]]:
    chunk: list[Rows] = []
    for part in parts:
        bound = _bound([*chunk, part], tables, lengths)
        if chunk and (len(chunk) == MOST or len(bound) > target.limits.storage_buffers):
            yield chunk
            chunk = []
        chunk.append(part)
    if chunk:
        yield chunk


def _bound(parts: Sequence[Rows], tables: Tables | None, lengths: Lengths | None) -> dict[str, Operand]:
    """The tensors by the names the shader has for them."""
    made: dict[str, Operand | None] = {}
    for i, part in enumerate(parts):
        made[f"x{i}"] = part.x if not i or part.x != parts[0].x else None
        made[f"weight{i}"], made[f"past{i}"], made[f"y{i}"] = part.weight, part.past, part.y
    if tables is not None and any(p.angles is not None for p in parts):
        made |= {"cosines": tables.cosines, "sines": tables.sines, "positions": tables.positions}
    if lengths is not None:
        made |= {"lengths": lengths.lengths, "prompt": lengths.prompt}
    return {name: operand for name, operand in made.items() if operand is not None}


def _dispatch(
    target: Target,
    parts: Sequence[Rows],
    tables: Tables | None,
    epsilon: float,
    into: bool,
    lengths: Lengths | None,
) -> Dispatch:
    bound = _bound(parts, tables, lengths)
    normed, turned = any(p.weight for p in parts), "cosines" in bound
    flags: dict[str, object] = {
        "INTO": into,
        "TURN": turned,
        "PAIRS": turned and tables is not None and tables.interleaved,
        "SHARED_COLUMNS": turned and tables is not None and tables.shared,
        "NORM": normed,
        # A row placed by lengths has the bits that attention gives to it where it makes it ready itself.
        "REDUCED": normed and not target.is_software and lengths is None,
        **{name.upper(): name in bound for name in ("lengths", "prompt", "positions")},
    }
    for i, part in enumerate(parts):
        flags |= {f"PAST{i}": part.past is not None, f"NORM{i}": part.weight is not None}
        if i:
            flags |= {f"PART{i}": True, f"OWN{i}": f"x{i}" in bound}
    flags |= {
        "TURNED": _bits(p.angles is not None for p in parts),
        "NORMED": _bits(p.weight is not None for p in parts),
        "PLACED": _bits(p.first is None for p in parts) if lengths is not None else None,
    }
    values: dict[str, Any] = {"half": tables.half if tables is not None else 0, "epsilon": epsilon}
    if lengths is not None:
        rows = tables.cosines.type.shape[0] if tables is not None else 0
        values |= {"angle_rows": rows, "queries": lengths.queries, "lacking": lengths.lacking}
    groups: Any = 0
    for i in range(MOST):
        part = parts[min(i, len(parts) - 1)]
        batch, heads, length, size = part.y.type.shape
        lanes = size // 4
        jobs = batch * heads * (part.rows if into else length)
        values[f"strides_{i}"], values[f"angles_{i}"] = part.view.strides, part.angles or (0, 0, 0, 0)
        values[f"sizes_{i}"] = (heads, part.rows, length, lanes)
        first = part.first if part.first is not None else part.past.type.shape[2] if part.past is not None else 0
        values[f"place_{i}"] = (part.view.base, first, jobs, groups)
        if i < len(parts):
            groups = groups + -(-jobs // (WORKGROUP // lanes))
    return launch("prepare_heads", bound, target.fold(positive(groups)), flags, values)


def _bits(flags: Iterable[bool]) -> int:
    return sum(1 << i for i, on in enumerate(flags) if on)

"""Rows of queries, keys and values made ready for attention in one dispatch: `shaders/prepare_heads.wgsl`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyruntime.ir import positive
from pyruntime.kernels.attention_form import HeadView
from pyruntime.kernels.dispatch import WORKGROUP, Dispatch, Operand, Target
from pyruntime.kernels.template import params_of, template

__all__ = ["MOST", "Rows", "Tables", "prepare_heads"]

MOST = 3
"""Tensors a dispatch makes."""


@dataclass(frozen=True, slots=True)
class Tables:
    """Rotary embedding by tables of cosines and sines.

    Attributes:
        half: pairs that turn. interleaved: pairs are (2j, 2j + 1), not (j, j + half). shared: a column for every pair,
            not for every component.
    """

    cosines: Operand
    sines: Operand
    half: int
    interleaved: bool
    shared: bool


@dataclass(frozen=True, slots=True)
class Rows:
    """What becomes of one tensor's rows.

    Attributes:
        x, view: where [B, H, rows, D] is; D a multiple of 4, at most 256. y: [B, H, length, D].
        past: [B, H, first, D], what y has in front of the new rows; none where y has them already, or there are none.
        weight: [D] of a norm over components. angles: strides of the tables over [B, H, rows, columns].
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
    target: Target, parts: Sequence[Rows], tables: Tables | None, epsilon: float, into: bool
) -> tuple[Dispatch, ...]:
    """One dispatch for as many of the parts as the device binds tensors for.

    Args:
        into: the new rows are all of y that is written, where a part has rows in front of them.
    """
    return tuple(_dispatch(target, chunk, tables, epsilon, into) for chunk in _chunks(target, parts, tables))


def _chunks(target: Target, parts: Sequence[Rows], tables: Tables | None) -> Iterator[list[Rows]]:
    chunk: list[Rows] = []
    for part in parts:
        if chunk and (len(chunk) == MOST or len(_bound([*chunk, part], tables)) > target.limits.storage_buffers):
            yield chunk
            chunk = []
        chunk.append(part)
    if chunk:
        yield chunk


def _bound(parts: Sequence[Rows], tables: Tables | None) -> dict[str, Operand]:
    """The tensors by the names the shader has for them."""
    made: dict[str, Operand | None] = {}
    for i, part in enumerate(parts):
        made[f"x{i}"] = part.x if not i or part.x != parts[0].x else None
        made[f"weight{i}"], made[f"past{i}"], made[f"y{i}"] = part.weight, part.past, part.y
    if tables is not None and any(p.angles is not None for p in parts):
        made |= {"cosines": tables.cosines, "sines": tables.sines}
    return {name: operand for name, operand in made.items() if operand is not None}


def _dispatch(target: Target, parts: Sequence[Rows], tables: Tables | None, epsilon: float, into: bool) -> Dispatch:
    bound = _bound(parts, tables)
    normed, turned = any(p.weight for p in parts), "cosines" in bound
    flags = {
        "INTO": into,
        "TURN": turned,
        "PAIRS": turned and tables is not None and tables.interleaved,
        "SHARED_COLUMNS": turned and tables is not None and tables.shared,
        "NORM": normed,
        "REDUCED": normed and not target.is_software,
    }
    for i, part in enumerate(parts):
        flags |= {f"PAST{i}": part.past is not None, f"NORM{i}": part.weight is not None}
        if i:
            flags |= {f"PART{i}": True, f"OWN{i}": f"x{i}" in bound}
    kernel = template(
        "prepare_heads",
        {name: operand.type.dtype for name, operand in bound.items()},
        TURNED=sum(1 << i for i, p in enumerate(parts) if p.angles is not None),
        NORMED=sum(1 << i for i, p in enumerate(parts) if p.weight is not None),
        **{name: 1 for name, on in flags.items() if on},
    )
    values: dict[str, Any] = {"half": tables.half if tables is not None else 0, "epsilon": epsilon}
    groups: Any = 0
    for i in range(MOST):
        part = parts[min(i, len(parts) - 1)]
        batch, heads, length, size = part.y.type.shape
        lanes = size // 4
        jobs = batch * heads * (part.rows if into else length)
        values[f"strides_{i}"], values[f"angles_{i}"] = part.view.strides, part.angles or (0, 0, 0, 0)
        values[f"sizes_{i}"] = (heads, part.rows, length, lanes)
        values[f"place_{i}"] = (part.view.base, part.first, jobs, groups)
        if i < len(parts):
            groups = groups + -(-jobs // (WORKGROUP // lanes))
    operands = tuple(bound[b.name] for b in kernel.bindings)
    return Dispatch(kernel, operands, target.fold(positive(groups)), params_of(kernel, **values))

"""Queries, keys and values made ready for attention in one dispatch: `shaders/attention_prepare.wgsl`."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from pyruntime.kernels.attention_append import Lengths, Turn
from pyruntime.kernels.attention_form import HeadView
from pyruntime.kernels.dispatch import Dispatch, Operand, Target
from pyruntime.kernels.template import params_of, template

__all__ = ["Fresh", "prepare"]


@dataclass(frozen=True, slots=True)
class Fresh:
    """New rows, the cache they go to, and what it held.

    Attributes:
        x, view: where the rows are. y: [B, heads, length, size], of queries the rows alone.
        past: [B, heads, P, size], or none. norm: the weight of a norm over components.
    """

    x: Operand
    view: HeadView
    y: Operand
    past: Operand | None = None
    norm: Operand | None = None

    @property
    def kept(self) -> Operand | None:
        """`past`, where it holds anything."""
        return self.past if self.past is not None and self.past.type.size else None


def prepare(
    target: Target,
    parts: Sequence[Fresh],
    rows: int,
    lengths: Lengths,
    turn: Turn | None,
    epsilon: float,
    into: bool = False,
) -> Dispatch | None:
    """Queries, keys and, where given, values of one dispatch; None where the device binds too few, or sizes do not fit.

    Args:
        into: the new rows are all of the caches that is written, the others are there already.
    """
    query, key = parts[:2]
    value = parts[2] if len(parts) > 2 else None
    if query.y.type.shape[3] % 4 or lengths.lengths is None:
        return None
    pasts = [None if part is None or into else part.kept for part in (key, value)]
    if value is not None and (pasts[0] is None) != (pasts[1] is None):
        return None
    given = _bound(query, key, value, pasts, lengths, turn)
    if len(given) > target.limits.storage_buffers:
        return None
    flags = {
        "PAST": pasts[0] is not None,
        "INTO": into,
        "VALUES": value is not None,
        "PROMPT": lengths.prompt is not None,
    }
    kernel = template(
        "attention_prepare",
        {name: operand.type.dtype for name, operand in given.items()},
        **{name: 1 for name, on in {**flags, **_turned(query, turn, given.keys())}.items() if on},
    )
    batch, heads, _, size = query.y.type.shape
    kv_heads, length = key.y.type.shape[1:3]
    quads = size // 4
    q_jobs, k_jobs = batch * heads * rows * quads, batch * kv_heads * (rows if into else length) * quads
    jobs = q_jobs + k_jobs * (len(parts) - 1)
    angle_rows, half = turn.cosines.type.shape if turn is not None else (0, 0)
    params = params_of(
        kernel,
        **_places(query, key, value or key),
        q_jobs=q_jobs,
        k_jobs=k_jobs,
        jobs=jobs,
        rows=rows,
        length=length,
        past_rows=pasts[0].type.shape[2] if pasts[0] is not None else 0,
        heads=heads,
        kv_heads=kv_heads,
        size=size,
        half=half,
        angle_rows=angle_rows,
        queries=lengths.queries,
        lacking=lengths.lacking,
        epsilon=epsilon,
    )
    return Dispatch(kernel, tuple(given[b.name] for b in kernel.bindings), target.grid(jobs), params)


def _turned(query: Fresh, turn: Turn | None, bound: Set[str]) -> dict[str, bool]:
    """The conditions of the shader that say how rows are made ready, and where they come from."""
    return {
        "PACKED": "key" not in bound,
        "TURN": turn is not None,
        "PAIRS": turn is not None and turn.interleaved,
        "POSITIONS": "positions" in bound,
        "NORM": query.norm is not None,
    }


def _places(query: Fresh, key: Fresh, value: Fresh) -> dict[str, list[int]]:
    """The Params fields that say where rows are."""
    views = {"q": query.view, "k": key.view, "v": value.view}
    strides = {f"{name}_strides": [*view.strides] for name, view in views.items()}
    return {**strides, "bases": [*(view.base for view in views.values()), 0]}


def _bound(
    query: Fresh, key: Fresh, value: Fresh | None, pasts: Sequence[Operand | None], lengths: Lengths, turn: Turn | None
) -> dict[str, Operand]:
    """The operands by their names in the shader; rows that are one packed tensor are bound as `query` alone."""
    packed = all(p.x == query.x for p in (key, value) if p is not None)
    bound = {
        "query": query.x,
        "key": None if packed else key.x,
        "value": None if packed or value is None else value.x,
        "past_key": pasts[0],
        "past_value": pasts[1],
        "cosines": turn.cosines if turn is not None else None,
        "sines": turn.sines if turn is not None else None,
        "positions": turn.positions if turn is not None else None,
        "q_weight": query.norm,
        "k_weight": key.norm,
        "lengths": lengths.lengths,
        "prompt": lengths.prompt,
        "ready": query.y,
        "y_key": key.y,
        "y_value": value.y if value is not None else None,
    }
    return {name: operand for name, operand in bound.items() if operand is not None}

"""Caches of packed rows: 8 or 4 bits a component, with a scale and an offset a row: `shaders/lib/packed_rows.wgsl`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyruntime.kernels.attention.append import Lengths
from pyruntime.kernels.attention.description import HeadView
from pyruntime.kernels.ir.dispatch import Dispatch, Operand
from pyruntime.kernels.ir.launch import launch
from pyruntime.target import WORKGROUP, Target

__all__ = ["PackedCache", "pack_cache"]

_LANES = 16
"""Invocations that make a row."""


@dataclass(frozen=True, slots=True)
class PackedCache:
    """New rows of keys or of values, and the cache they become a part of.

    Attributes:
        x, view: where [B, G, rows, D] is, as vec4s. y: the cache. past: what y has before the new rows; None: y has
            them already, or there are none.
    """

    x: Operand
    view: HeadView
    y: Operand
    past: Operand | None


def pack_cache(
    target: Target, parts: tuple[PackedCache, PackedCache], rows: int, size: int, bits: int, into: bool, at: Lengths
) -> Dispatch:
    """Pack the new rows of keys and of values into caches uint8 [B, G, C, D * bits / 8 + 4].

    Args:
        rows: new rows of a head. size: D.
        into: the new rows are all that is written.
    """
    keys, values = parts
    bound = {
        "x0": keys.x,
        "x1": values.x,
        "past0": keys.past,
        "past1": values.past,
        "lengths": at.lengths,
        "prompt": at.prompt,
        "y0": keys.y,
        "y1": values.y,
    }
    flags = {
        "SIZE": size,
        "NIBBLES": bits == 4,
        "INTO": into,
        "PAST": keys.past is not None,
        "LENGTHS": at.lengths is not None,
        "PROMPT": at.prompt is not None,
    }
    batch, heads, length = keys.y.type.shape[:3]
    part_jobs = batch * heads * (rows if into else length)
    params: dict[str, Any] = {
        "strides_0": keys.view.strides,
        "strides_1": values.view.strides,
        "base_0": keys.view.base,
        "base_1": values.view.base,
        "heads": heads,
        "rows": rows,
        "length": length,
        "past_rows": keys.past.type.shape[2] if keys.past is not None else 0,
        "lacking": at.lacking,
        "queries": at.queries,
        "part_jobs": part_jobs,
        "jobs": 2 * part_jobs,
    }
    groups = -(-2 * part_jobs // (WORKGROUP // _LANES))
    return launch("pack_cache", bound, target.fold(groups), flags, params)

"""Recordings and runs as JSON for web/gpu/recording.js, so that each takes one call whatever its length.

The JSON refers to buffers and pipelines by index in lists that are passed with it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pyruntime.compiler.plan import Kept, RunRows, Transfer
from pyruntime.compiler.repeated import Repeated
from pyruntime.device.base import Bound, Slice, Slot
from pyruntime.device.execution.executable import Replay
from pyruntime.ir import TensorType

__all__ = ["Written", "described", "written"]


@dataclass(frozen=True, slots=True)
class Written:
    """JSON, and what its indices refer to: numbers of buffers, WGSL sources of pipelines."""

    text: str
    buffers: list[int]
    sources: list[str]


def written(commands: Sequence[Bound], repeated: Sequence[Repeated] = ()) -> Written:
    """Serialize the commands of a recording. An object that occurs several times is written once."""
    buffers, sources = dict[int, int](), dict[str, int]()
    distinct: dict[int, Bound] = {}
    order = [distinct.setdefault(id(c), c) for c in commands]
    rows = []
    for c in distinct.values():
        parts: list[int] = []
        for p in (*c.storage, *((c.uniform,) if c.uniform else ())):
            place = -1 - p.buffer if isinstance(p, Slot) else buffers.setdefault(p.buffer, len(buffers))
            parts += place, p.offset, p.nbytes
        pipeline = sources.setdefault(c.source, len(sources))
        rows.append((pipeline, c.grid, c.scaled, parts, c.flops))
    places = {key: i for i, key in enumerate(distinct)}
    again = [places[id(c)] for c in order] if len(distinct) < len(commands) else None
    loops = [(r.first, r.count, r.times, r.scaled) for r in repeated]
    return Written(_json({"rows": rows, "order": again, "repeated": loops}), list(buffers), list(sources))


def described(replay: Replay, sizes: dict[str, Any] | None) -> Written:
    """Serialize a run, with the field names of web/gpu/replay.js.

    Args:
        sizes: the fields of `Sizes` of web/gpu/sizes.js except `buffer` and `params`; None for a plan without dynamic
            sizes.
    """
    buffers = dict[int, int]()

    def number(place: Slice) -> int:
        return buffers.setdefault(place.buffer, len(buffers))

    def seen(name: str, kind: TensorType, scaled: Sequence[int]) -> dict[str, Any]:
        dims = list(kind.shape)
        return {"name": name, "type": kind.dtype.js_name, "dims": dims, "scaled": list(scaled), "bits": kind.dtype.bits}

    def shape(value: Transfer | Kept) -> dict[str, Any]:
        return seen(value.name, value.type, value.scaled)

    def at(place: Slice) -> dict[str, Any]:
        return {"buffer": number(place), "offset": place.offset}

    def slots(transfers: Sequence[Transfer]) -> list[dict[str, Any]]:
        given = {k.input: seen(k.input, k.given, k.given_scaled) for k in replay.kept if k.given}
        return [{**given.get(t.name, shape(t)), "slot": t.region.index} for t in transfers]

    data = {
        "uploads": [{**shape(t), **at(place)} for t, place in replay.uploads],
        "downloads": [{**shape(t), **at(place)} for t, place in replay.downloads],
        "bounds": [asdict(b) for b in replay.bounds],
        "unread": [seen(u.name, u.type, u.scaled) for u in replay.unread],
        "inputs": slots(replay.inputs),
        "outputs": slots(replay.outputs),
        "kept": [
            {
                **shape(k),
                "input": k.input,
                "axis": k.axis,
                "capacity": k.capacity,
                "first": _rows(k.first),
                "end": _rows(k.end),
            }
            for k in replay.kept
        ],
        "numbers": [
            {
                "elements": list(made.elements),
                "expressions": list(made.expressions),
                "bytes": made.transfer.type.dtype.bits // 8,
                **at(place),
            }
            for made, place in replay.numbers
        ],
        "sizes": sizes and {**sizes, "buffer": number(replay.params) if replay.params else None},
    }
    return Written(_json(data), list(buffers), [])


def _rows(rows: RunRows | None) -> dict[str, Any] | None:
    return {"input": rows.input, "offset": rows.offset, "expression": rows.expression} if rows else None


def _json(data: object) -> str:
    return json.dumps(data, separators=(",", ":"), check_circular=False)

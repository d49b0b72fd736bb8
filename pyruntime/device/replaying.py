"""Runs as `Replay` of web/replay.js has them: which tensors go where."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyruntime.device.base import Slice
from pyruntime.device.executable import Replay
from pyruntime.ir import TensorType
from pyruntime.plan.plan import Kept, RunRows, Transfer

__all__ = ["described"]


def described(replay: Replay, names: Callable[[TensorType], str], buffers: Mapping[int, Any]) -> dict[str, Any]:
    """The tensors of a run, by the names that web/replay.js has for them.

    Args:
        names: JavaScript's name of a tensor's element type.
        buffers: the GPUBuffer of each number.
    """

    def seen(name: str, kind: TensorType, scaled: Sequence[int]) -> dict[str, Any]:
        dims = list(kind.shape)
        return {"name": name, "type": names(kind), "dims": dims, "scaled": list(scaled), "bits": kind.dtype.bits}

    def shape(value: Transfer | Kept) -> dict[str, Any]:
        return seen(value.name, value.type, value.scaled)

    def at(place: Slice) -> dict[str, Any]:
        return {"buffer": buffers[place.buffer], "offset": place.offset}

    def slots(transfers: Sequence[Transfer]) -> list[dict[str, Any]]:
        given = {k.input: seen(k.input, k.given, k.given_scaled) for k in replay.kept if k.given}
        return [{**given.get(t.name, shape(t)), "slot": t.region.index} for t in transfers]

    return {
        "uploads": [{**shape(t), **at(place)} for t, place in replay.uploads],
        "downloads": [{**shape(t), **at(place)} for t, place in replay.downloads],
        "unread": [seen(u.name, u.type, u.scaled) for u in replay.unread],
        "inputs": slots(replay.inputs),
        "outputs": slots(replay.outputs),
        "kept": [
            {**shape(k), "input": k.input, "axis": k.axis, "room": k.room, "first": _rows(k.first), "end": _rows(k.end)}
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
    }


def _rows(rows: RunRows | None) -> dict[str, Any] | None:
    return {"input": rows.input, "offset": rows.offset, "expression": rows.expression} if rows else None

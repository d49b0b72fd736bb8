"""What web/player.js does, call by call from Python: for pages that do not provide it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from pyruntime.device.waiting import attend
from pyruntime.errors import EngineError

__all__ = ["play", "scaled"]

JsObject = Any

_SCOPES = ("internal", "out-of-memory", "validation")
_MAP_READ, _COPY_DST = 0x1, 0x8  # WebGPU's GPUBufferUsage and GPUMapMode


async def play(
    device: JsObject,
    commands: Sequence[dict[str, Any]],
    upload: Callable[[], object],
    reads: Sequence[dict[str, Any]],
    to_object: Callable[[object], JsObject],
) -> list[JsObject]:
    """Upload, run the commands in one pass, read back: an ArrayBuffer for each read.

    Args:
        commands: with `pipeline`, `group` and `grid`.
        reads: with `buffer`, `offset` and `nbytes`.
        to_object: Python's dicts and lists as JavaScript's.

    Raises:
        EngineError: an error scope caught something.
    """
    staging: list[JsObject] = []
    try:
        for kind in _SCOPES:
            device.pushErrorScope(kind)
        try:
            upload()
            _queue(device, commands, reads, staging, to_object)
        finally:
            scopes = [device.popErrorScope() for _ in _SCOPES]
        for error in await asyncio.gather(*scopes):
            if error:
                raise EngineError(str(error.message))
        for buffer in staging:
            await attend(device, buffer.mapAsync(_MAP_READ), to_object)
        return [b.getMappedRange().slice(0, r["nbytes"]) for b, r in zip(staging, reads, strict=True)]
    finally:
        for buffer in staging:
            buffer.destroy()


def _queue(
    device: JsObject,
    commands: Sequence[dict[str, Any]],
    reads: Sequence[dict[str, Any]],
    staging: list[JsObject],
    to_object: Callable[[object], JsObject],
) -> None:
    """Encode and submit; `staging` gets a buffer for each read."""
    encoder = device.createCommandEncoder()
    if commands:
        compute = encoder.beginComputePass()
        for command in commands:
            compute.setPipeline(command["pipeline"])
            compute.setBindGroup(0, command["group"])
            compute.dispatchWorkgroups(*command["grid"])
        compute.end()
    for read in reads:
        size = (read["nbytes"] + 3) & ~3
        wanted = {"label": "staging", "size": size, "usage": _MAP_READ | _COPY_DST}
        buffer = device.createBuffer(to_object(wanted))
        staging.append(buffer)
        encoder.copyBufferToBuffer(read["buffer"], read["offset"], buffer, 0, size)
    device.queue.submit(to_object([encoder.finish()]))


def scaled(commands: Sequence[dict[str, Any]], numbers: Sequence[int]) -> list[dict[str, Any]]:
    """The commands with the grids of a run."""
    return [
        {**c, "grid": [n if k < 0 else numbers[k] for n, k in zip(c["grid"], c["scaled"], strict=True)]}
        if len(c["scaled"])
        else c
        for c in commands
    ]

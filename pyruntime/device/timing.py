"""The time of each dispatch: by GPU timestamps where the device has 'timestamp-query', else one submit a dispatch.

Source: WebGPU specification, section 20 (queries): timestamps are nanoseconds, possibly quantised.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Sequence
from typing import Any

from pyruntime.device.waiting import attend

__all__ = ["timed"]

_QUERIES = 4096  # WebGPU's limit of a query set
_RESOLVE, _COPY_SRC, _COPY_DST, _MAP_READ = 0x200, 0x4, 0x8, 0x1

JsObject = Any


async def timed(
    gpu: JsObject, commands: Sequence[JsObject], has_queries: bool, to_object: Callable[[object], JsObject]
) -> tuple[list[tuple[int, int]], str]:
    """Run each command in a pass of its own; (begin, duration) in nanoseconds of each, and the clock's name.

    Args:
        commands: objects with `pipeline`, `group` and `grid`.
        to_object: a Python dict as a JavaScript object.
    """
    if not has_queries:
        return await _by_submit(gpu, commands, to_object)
    spans: list[tuple[int, int]] = []
    for first in range(0, len(commands), _QUERIES // 2):
        spans += await _by_query(gpu, commands[first : first + _QUERIES // 2], to_object)
    origin = min((begin for begin, _ in spans), default=0)
    return [(begin - origin, duration) for begin, duration in spans], "gpu"


def _encode(compute: JsObject, command: JsObject) -> None:
    compute.setPipeline(command["pipeline"])
    compute.setBindGroup(0, command["group"])
    compute.dispatchWorkgroups(*command["grid"])
    compute.end()


async def _by_submit(
    gpu: JsObject, commands: Sequence[JsObject], to_object: Callable[[object], JsObject]
) -> tuple[list[tuple[int, int]], str]:
    spans = []
    await attend(gpu, gpu.queue.onSubmittedWorkDone(), to_object, exact=True)
    origin = time.perf_counter_ns()
    for command in commands:
        began = time.perf_counter_ns()
        encoder = gpu.createCommandEncoder()
        _encode(encoder.beginComputePass(), command)
        gpu.queue.submit(to_object([encoder.finish()]))
        await attend(gpu, gpu.queue.onSubmittedWorkDone(), to_object, exact=True)
        spans.append((began - origin, time.perf_counter_ns() - began))
    return spans, "host"


async def _by_query(
    gpu: JsObject, commands: Sequence[JsObject], to_object: Callable[[object], JsObject]
) -> list[tuple[int, int]]:
    count = 2 * len(commands)
    queries = gpu.createQuerySet(to_object({"type": "timestamp", "count": count}))
    resolved = gpu.createBuffer(to_object({"label": "timestamps", "size": 8 * count, "usage": _RESOLVE | _COPY_SRC}))
    staging = gpu.createBuffer(to_object({"label": "timestamps", "size": 8 * count, "usage": _MAP_READ | _COPY_DST}))
    try:
        encoder = gpu.createCommandEncoder()
        for i, command in enumerate(commands):
            at = {"querySet": queries, "beginningOfPassWriteIndex": 2 * i, "endOfPassWriteIndex": 2 * i + 1}
            _encode(encoder.beginComputePass(to_object({"timestampWrites": at})), command)
        encoder.resolveQuerySet(queries, 0, count, resolved, 0)
        encoder.copyBufferToBuffer(resolved, 0, staging, 0, 8 * count)
        gpu.queue.submit(to_object([encoder.finish()]))
        await attend(gpu, staging.mapAsync(1), to_object)
        ticks = struct.unpack(f"<{count}Q", bytes(staging.getMappedRange().to_py()))
        staging.unmap()
    finally:
        for made in (queries, resolved, staging):
            made.destroy()
    return [(ticks[2 * i], max(0, ticks[2 * i + 1] - ticks[2 * i])) for i in range(len(commands))]

"""Execution time of each dispatch: from GPU timestamps, or from the wall time of separate submits."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from pyruntime.device.desktop.implementations import GpuObject, Implementation
from pyruntime.device.desktop.memory import Staging
from pyruntime.device.desktop.recordings import Ready

__all__ = ["Encode", "spans_of"]

Encode: TypeAlias = Callable[[GpuObject, Sequence[Ready], dict[str, Any] | None], None]
"""`Implementation.encode` for an encoder, commands and timestamps, with what all passes of the device bind."""

MOST = 1024
"""Dispatches in one query set: each takes two queries, and a set has at most 4096."""

_BYTES = 8
"""Size of a timestamp in bytes."""


def spans_of(
    implementation: Implementation,
    device: GpuObject,
    staging: Staging,
    encode: Encode,
    commands: Sequence[Ready],
    has_queries: bool,
) -> list[tuple[int, int]]:
    """Run the commands one at a time; return (begin, duration) of each in nanoseconds, from the begin of the first."""
    if not has_queries:
        return _by_submits(implementation, device, staging, encode, commands)
    ticks: list[tuple[int, int]] = []
    for first in range(0, len(commands), MOST):
        ticks += _by_timestamps(implementation, device, staging, encode, commands[first : first + MOST])
    origin = min((begin for begin, _ in ticks), default=0)
    return [(begin - origin, max(0, end - begin)) for begin, end in ticks]


def _by_timestamps(
    implementation: Implementation, device: GpuObject, staging: Staging, encode: Encode, commands: Sequence[Ready]
) -> list[tuple[int, int]]:
    """Return the GPU's timestamps (begin, end) of each command, in nanoseconds."""
    queries = 2 * len(commands)
    usage = implementation.api.BufferUsage
    query_set = device.create_query_set(type="timestamp", count=queries)
    resolved = device.create_buffer(size=_BYTES * queries, usage=usage.QUERY_RESOLVE | usage.COPY_SRC)
    encoder = device.create_command_encoder()
    for place, command in enumerate(commands):
        names = "beginning_of_pass_write_index", "end_of_pass_write_index"
        writes = {"query_set": query_set, **{name: 2 * place + i for i, name in enumerate(names)}}
        encode(encoder, [command], writes)
    encoder.resolve_query_set(query_set, 0, queries, resolved, 0)
    buffer = staging.take(_BYTES * queries)
    encoder.copy_buffer_to_buffer(resolved, 0, buffer, 0, _BYTES * queries)
    device.queue.submit([encoder.finish()])
    ticks = np.frombuffer(implementation.read(buffer, [(0, _BYTES * queries)])[0], np.uint64).reshape(-1, 2)
    staging.give(buffer)
    resolved.destroy()
    query_set.destroy()
    return [(int(begin), int(end)) for begin, end in ticks]


def _by_submits(
    implementation: Implementation, device: GpuObject, staging: Staging, encode: Encode, commands: Sequence[Ready]
) -> list[tuple[int, int]]:
    """Return (begin, duration) of each command in nanoseconds of wall time, with one submit a command."""
    spans: list[tuple[int, int]] = []
    origin = time.perf_counter_ns()
    for command in commands:
        began = time.perf_counter_ns()
        encoder = device.create_command_encoder()
        encode(encoder, [command], None)
        device.queue.submit([encoder.finish()])
        buffer = staging.take(_BYTES)
        implementation.read(buffer, [(0, _BYTES)])
        staging.give(buffer)
        spans.append((began - origin, time.perf_counter_ns() - began))
    return spans

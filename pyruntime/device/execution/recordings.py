"""Recordings of a plan's GPU segments, for each set of buffers that runs bind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyruntime.compiler.plan import GpuSegment, Plan
from pyruntime.device.base import Device
from pyruntime.device.execution.plan_memory import PlanMemory

__all__ = ["Recorded", "Recordings"]

_MOST = 8
"""Number of buffer sets whose recordings are cached."""


@dataclass(slots=True)
class Recorded:
    """Recordings for one set of external buffers, by number of the step."""

    external: list[int]
    recordings: dict[int, int]


class Recordings:
    """The recordings of a plan. Each segment is recorded once, then bound to the buffers of runs."""

    def __init__(self, plan: Plan, device: Device, memory: PlanMemory) -> None:
        self._plan, self._device, self._memory = plan, device, memory
        self._names = [t.name for t in plan.external if t.name in memory.bound]
        self._open: dict[int, int] = {}
        self._bound: dict[tuple[int, ...], Recorded] = {}

    @property
    def open(self) -> dict[int, int]:
        """Recordings by number of the step, with slots for the buffers of runs; recorded on first use."""
        if not self._open:
            external = self._memory.external({})
            for n, step in enumerate(self._plan.steps):
                if isinstance(step, GpuSegment):
                    self._open[n] = self._device.record(
                        [self._memory.bind(c, external) for c in step.commands], step.repeated
                    )
        return self._open

    def of(self, bound: Mapping[str, int]) -> Recorded:
        """Return the recordings for these buffers (by tensor name). The least recently used set is dropped."""
        key = tuple([bound[name] for name in self._names])
        made = self._bound.pop(key, None)
        if made is None:
            external = self._memory.external(bound)
            recordings = self.open
            if key:
                recordings = {n: self._device.bind(recording, external) for n, recording in recordings.items()}
            made = Recorded(external, recordings)
            if len(self._bound) >= _MOST:
                self._drop(self._bound.pop(next(iter(self._bound))).recordings)
        self._bound[key] = made
        return made

    def forget(self) -> None:
        """Drop all recordings, whose buffers no longer exist."""
        for recordings in (*(r.recordings for r in self._bound.values()), self._open):
            self._drop(recordings)
        self._bound, self._open = {}, {}

    def _drop(self, recordings: Mapping[int, int]) -> None:
        for recording in recordings.values():
            self._device.drop(recording)

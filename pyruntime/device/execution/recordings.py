"""The GPU segments of a plan as recordings of a device, for the sets of buffers that runs bring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyruntime.compiler.plan import GpuSegment, Plan
from pyruntime.device.base import Device
from pyruntime.device.execution.plan_memory import PlanMemory

__all__ = ["Recorded", "Recordings"]

_MOST = 8
"""Sets of buffers whose recordings are cached."""


@dataclass(slots=True)
class Recorded:
    """GPU segments recorded for one set of external buffers: recordings by number of the step."""

    external: list[int]
    recordings: dict[int, int]


class Recordings:
    """The recordings of a plan: each segment is recorded once, and bound to the buffers of a run."""

    def __init__(self, plan: Plan, device: Device, memory: PlanMemory) -> None:
        self._plan, self._device, self._memory = plan, device, memory
        self._names = [t.name for t in plan.external if t.name in memory.bound]
        self._open: dict[int, int] = {}
        self._bound: dict[tuple[int, ...], Recorded] = {}

    @property
    def open(self) -> dict[int, int]:
        """The GPU segments by number of the step, with slots for what runs bring; recorded when first asked for."""
        if not self._open:
            external = self._memory.external({})
            for n, step in enumerate(self._plan.steps):
                if isinstance(step, GpuSegment):
                    self._open[n] = self._device.record(
                        [self._memory.bind(c, external) for c in step.commands], step.repeated
                    )
        return self._open

    def of(self, bound: Mapping[str, int]) -> Recorded:
        """Return the recordings for these buffers by name; the least recently used set is dropped."""
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
        """Drop all: what they bind is no longer there."""
        for recordings in (*(r.recordings for r in self._bound.values()), self._open):
            self._drop(recordings)
        self._bound, self._open = {}, {}

    def _drop(self, recordings: Mapping[int, int]) -> None:
        for recording in recordings.values():
            self._device.drop(recording)

"""Recorded commands: bind groups are created once, and encoded again for each run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pyruntime.compiler.repeated import Repeated, order_of
from pyruntime.device.base import Bound, Slice, Slot
from pyruntime.device.desktop.implementations import GpuObject
from pyruntime.device.desktop.long_runs import work_of
from pyruntime.device.desktop.pipelines import Pipelines

__all__ = ["Ready", "Recording", "submits_of"]

Ready = tuple[GpuObject, GpuObject, tuple[int, int, int]]
"""A dispatch: pipeline, bind group, workgroups."""

FIRST, MOST, WHOLE = 16, 96, 48
"""Dispatches in the first submit and in the largest one: each submit has twice as many as the one before, so that the
GPU works on the first while later ones are encoded. Up to `WHOLE` dispatches go in a single submit.
"""


@dataclass(frozen=True, slots=True)
class _Open:
    """A command with slots: its index in the recording, its bind group layout and its bindings."""

    place: int
    layout: GpuObject
    parts: list[Slice]


@dataclass(slots=True)
class Recording:
    """Commands with their bind groups.

    Attributes:
        buffers: numbers of all bound buffers, without those of slots.
        groups: the bind group of each command; for a command with slots the latest one, None before the first `bound`.
        work: estimated operations of each command. repeated: ranges of commands that run several times.
    """

    commands: list[Bound]
    groups: list[GpuObject | None]
    buffers: frozenset[int]
    work: list[int]
    repeated: Sequence[Repeated]
    _scaled: list[int]
    _pipelines: list[GpuObject] = field(default_factory=list)
    _open: dict[int, list[_Open]] = field(default_factory=dict)
    _given: dict[int, int] = field(default_factory=dict)
    _ready: list[Ready] = field(default_factory=list)

    @staticmethod
    def of(
        device: GpuObject,
        pipelines: Pipelines,
        buffers: Mapping[int, GpuObject],
        commands: list[Bound],
        repeated: Sequence[Repeated] = (),
    ) -> Recording:
        """Record commands. Raises an exception of the package where a bind group is refused."""
        known: dict[int, GpuObject | None] = {}
        used: set[int] = set()
        opened: dict[int, list[_Open]] = {}
        groups = []
        for place, command in enumerate(commands):
            parts = _parts(command)
            slots = {p.buffer for p in parts if isinstance(p, Slot)}
            layout = pipelines.group_layout(command.source)
            for slot in slots:
                opened.setdefault(slot, []).append(_Open(place, layout, parts))
            if id(command) not in known:
                used.update(p.buffer for p in parts if not isinstance(p, Slot))
                known[id(command)] = None if slots else _group(device, layout, buffers, parts)
            groups.append(known[id(command)])
        scaled = [i for i, c in enumerate(commands) if c.scaled]
        work = list(map(work_of, commands))
        return Recording(commands, groups, frozenset(used), work, repeated, scaled, _open=opened)

    def bound(self, device: GpuObject, buffers: Mapping[int, GpuObject], given: Sequence[int]) -> Recording:
        """Return this recording with the buffers of these numbers in its slots.

        Only commands with other buffers than in the previous call get new bind groups.
        """

        def filled(part: Slice) -> Slice:
            if not isinstance(part, Slot):
                return part
            number = given[part.buffer]
            return Slice(number, part.offset, min(part.nbytes, buffers[number].size - part.offset))

        changed = {slot: given[slot] for slot in self._open if given[slot] != self._given.get(slot)}
        affected = {command.place: command for slot in changed for command in self._open[slot]}
        made = {i: _group(device, c.layout, buffers, list(map(filled, c.parts))) for i, c in affected.items()}
        for place, group in made.items():
            self.groups[place] = group
        self._given |= changed
        used = self.buffers.union(self._given.values())
        shared = self.work, self.repeated, self._scaled, self._pipelines
        return Recording(self.commands, list(self.groups), used, *shared)

    def ready(self, pipelines: Pipelines, numbers: Sequence[int]) -> tuple[list[Ready], list[int]]:
        """Return the dispatches of a run with these numbers, and the estimated operations of each.

        All pipelines of the recording must have been compiled.
        """
        if len(self._pipelines) < len(self.commands):
            self._pipelines[:] = [pipelines[c.source] for c in self.commands]
        if len(self._ready) < len(self.commands):
            self._ready = list(zip(self._pipelines, self.groups, [c.grid for c in self.commands], strict=True))
        made = list(self._ready) if self._scaled else self._ready
        for i in self._scaled:
            pipeline, group, _ = made[i]
            made[i] = pipeline, group, _scaled_grid(self.commands[i], numbers)
        if not self.repeated:
            return made, self.work
        order = order_of(len(made), self.repeated, lambda r: r.trips(numbers))
        return [made[i] for i in order], [self.work[i] for i in order]


def submits_of(commands: Sequence[Ready]) -> Iterator[Sequence[Ready]]:
    """Split commands into submits; without commands, yield one empty submit."""
    count = FIRST if len(commands) > WHOLE else WHOLE
    first = 0
    while True:
        yield commands[first : first + count]
        first += count
        if first >= len(commands):
            return
        count = min(2 * count, MOST)


def _parts(command: Bound) -> list[Slice]:
    return [*command.storage, *([command.uniform] if command.uniform else [])]


def _scaled_grid(command: Bound, numbers: Sequence[int]) -> tuple[int, int, int]:
    (x, y, z), (of_x, of_y, of_z) = command.grid, command.scaled
    return x if of_x < 0 else numbers[of_x], y if of_y < 0 else numbers[of_y], z if of_z < 0 else numbers[of_z]


def _group(device: GpuObject, layout: GpuObject, buffers: Mapping[int, GpuObject], parts: Sequence[Slice]) -> GpuObject:
    entries = [
        {"binding": i, "resource": {"buffer": buffers[p.buffer], "offset": p.offset, "size": (p.nbytes + 3) & ~3}}
        for i, p in enumerate(parts)
    ]
    return device.create_bind_group(layout=layout, entries=entries)

"""Recorded commands: bind groups made once, encoded anew for each run."""

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
"""Dispatches in the first submit, and at most in one: each has twice as many as the one before, so that the GPU works
on the first while the others are encoded. As many as `WHOLE` go in one."""


@dataclass(frozen=True, slots=True)
class _Open:
    """A command with slots.

    Attributes:
        place: its number among the commands.
        slots: the numbers of the external tensors that it binds.
    """

    place: int
    layout: GpuObject
    parts: list[Slice]
    slots: frozenset[int]


@dataclass(slots=True)
class Recording:
    """Commands with what they bind.

    Attributes:
        buffers: numbers of all buffers that are bound, slots excepted.
        groups: the bind group of each command; None for those with slots.
        work: about how many operations each command takes. repeated: commands that run several times.
    """

    commands: list[Bound]
    groups: list[GpuObject | None]
    buffers: frozenset[int]
    work: list[int]
    repeated: Sequence[Repeated]
    _scaled: list[int]
    _open: Sequence[_Open] = ()
    _pipelines: list[GpuObject] = field(default_factory=list)
    _ready: list[Ready] = field(default_factory=list)
    _last: tuple[Sequence[int], list[GpuObject | None]] = ((), [])

    @staticmethod
    def of(
        device: GpuObject,
        pipelines: Pipelines,
        buffers: Mapping[int, GpuObject],
        commands: list[Bound],
        repeated: Sequence[Repeated] = (),
    ) -> Recording:
        """Record commands. Raises the package's exceptions: a bind group is refused."""
        known: dict[int, GpuObject | None] = {}
        used: set[int] = set()
        groups, opened = [], list[_Open]()
        for place, command in enumerate(commands):
            parts = _parts(command)
            slots = frozenset(p.buffer for p in parts if isinstance(p, Slot))
            if slots:
                opened.append(_Open(place, pipelines.group_layout(command.source), parts, slots))
                used.update(p.buffer for p in parts if not isinstance(p, Slot))
                groups.append(None)
                continue
            if id(command) not in known:
                used.update(p.buffer for p in parts)
                known[id(command)] = _group(device, pipelines.group_layout(command.source), buffers, parts)
            groups.append(known[id(command)])
        scaled = [i for i, c in enumerate(commands) if c.scaled]
        return Recording(commands, groups, frozenset(used), list(map(work_of, commands)), repeated, scaled, opened)

    def bound(self, device: GpuObject, buffers: Mapping[int, GpuObject], given: Sequence[int]) -> Recording:
        """Return this recording with the buffers of these numbers in its slots.

        Commands for which nothing has changed since the last call have the bind groups that it made.
        """

        def filled(part: Slice) -> Slice:
            if not isinstance(part, Slot):
                return part
            number = given[part.buffer]
            return Slice(number, part.offset, min(part.nbytes, buffers[number].size - part.offset))

        last, groups = self._last
        same = {slot for slot, (number, before) in enumerate(zip(given, last, strict=False)) if number == before}
        groups = list(groups or self.groups)
        used = set(self.buffers)
        for command in self._open:
            used.update([given[slot] for slot in command.slots])
            if not command.slots <= same:
                groups[command.place] = _group(device, command.layout, buffers, list(map(filled, command.parts)))
        self._last = tuple(given), groups
        shared = self.work, self.repeated, self._scaled
        return Recording(self.commands, groups, frozenset(used), *shared, _pipelines=self._pipelines)

    def ready(self, pipelines: Pipelines, numbers: Sequence[int]) -> tuple[list[Ready], list[int]]:
        """Return the dispatches of a run with these numbers, and about how many operations each takes.

        The pipelines of the recording are compiled.
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
    """Yield the commands of each submit; one without commands where there are none."""
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

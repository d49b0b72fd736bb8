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
    repeated: Sequence[Repeated] = ()
    _ready: list[Ready] = field(default_factory=list)
    _scaled: list[int] = field(default_factory=list)

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
        groups = []
        for command in commands:
            if id(command) not in known:
                parts = _parts(command)
                used.update(p.buffer for p in parts if not isinstance(p, Slot))
                is_open = any(isinstance(p, Slot) for p in parts)
                known[id(command)] = None if is_open else _group(device, pipelines, buffers, command, parts)
            groups.append(known[id(command)])
        return Recording(commands, groups, frozenset(used), list(map(work_of, commands)), repeated)

    def bound(
        self, device: GpuObject, pipelines: Pipelines, buffers: Mapping[int, GpuObject], given: Sequence[int]
    ) -> Recording:
        """Return this recording with the buffers of these numbers in its slots."""

        def filled(part: Slice) -> Slice:
            if not isinstance(part, Slot):
                return part
            number = given[part.buffer]
            return Slice(number, part.offset, min(part.nbytes, buffers[number].size - part.offset))

        used, groups = set(self.buffers), []
        for command, group in zip(self.commands, self.groups, strict=True):
            if group is None:
                parts = [filled(p) for p in _parts(command)]
                used.update(p.buffer for p in parts)
                group = _group(device, pipelines, buffers, command, parts)
            groups.append(group)
        return Recording(self.commands, groups, frozenset(used), self.work, self.repeated)

    def ready(self, pipelines: Pipelines, numbers: Sequence[int]) -> tuple[list[Ready], list[int]]:
        """Return the dispatches of a run with these numbers, and about how many operations each takes.

        The pipelines of the recording are compiled.
        """
        if len(self._ready) < len(self.commands):
            parts = zip(self.commands, self.groups, strict=True)
            self._ready = [(pipelines[c.source], group, c.grid) for c, group in parts]
            self._scaled = [i for i, c in enumerate(self.commands) if c.scaled]
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
    x, y, z = (n if s < 0 else numbers[s] for n, s in zip(command.grid, command.scaled, strict=True))
    return x, y, z


def _group(
    device: GpuObject,
    pipelines: Pipelines,
    buffers: Mapping[int, GpuObject],
    command: Bound,
    parts: Sequence[Slice],
) -> GpuObject:
    entries = [
        {"binding": i, "resource": {"buffer": buffers[p.buffer], "offset": p.offset, "size": (p.nbytes + 3) & ~3}}
        for i, p in enumerate(parts)
    ]
    return device.create_bind_group(layout=pipelines.group_layout(command.source), entries=entries)

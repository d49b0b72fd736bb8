"""Sanitizer: run every dispatch in the plan's memory and again in separate memory, and compare the bits.

The first dispatch that differs shows memory that the plan shares, reuses or overwrites too early, a kernel that leaves
part of its output unwritten, or a race between invocations. Enabled by the session config entry `pyruntime.sanitize` =
'1'. A run takes one submit and one readback for each dispatch.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, MutableMapping, Sequence

from pyruntime.compiler.plan import Command, GpuSegment, Plan
from pyruntime.compiler.repeated import order_of
from pyruntime.device.base import Bound, Device, Measured, Raw, Read, Slice, Write
from pyruntime.device.execution.arenas import Arenas
from pyruntime.device.execution.executable import Executable, Replay
from pyruntime.device.execution.plan_memory import Compute
from pyruntime.device.execution.plan_runs import Observer, PlanRuns, Sized, arrived
from pyruntime.device.execution.recordings import Recorded
from pyruntime.device.execution.weights import Weights
from pyruntime.errors import Fail
from pyruntime.ops.host import HostValue

__all__ = ["SanitizedExecutable"]

POISON = 0xCD
"""Byte that fills unwritten memory: -4.3e8 as float32, -23.2 as float16, out of range as an index."""


class SanitizedExecutable(Executable):
    """An executable that compares each dispatch with that of `alone`, the plan with separate memory for each value.

    A run raises Fail for the first dispatch that differs, with node, kernel, value and offset of the first byte.
    """

    def __init__(
        self,
        plan: Plan,
        alone: Plan,
        device: Device,
        weights: Weights,
        resident: Mapping[str, int],
        bound: Iterable[str] = (),
    ) -> None:
        super().__init__(plan, device, weights, resident, bound)
        self._alone = Executable(alone, device, weights, resident)
        self.runs = _ComparedRuns(device, self, self._alone)

    @property
    def arenas(self) -> Sequence[Arenas]:
        return (*super().arenas, *self._alone.arenas)

    async def prepare(self, compute: Compute | None = None) -> None:
        await super().prepare(compute)
        try:
            await self._alone.prepare()
        except BaseException:
            self.release()
            raise

    async def _compute(self, compute: Compute | None) -> None:
        await super()._compute(compute)
        self._alone.memory.resident.update(self.resident)

    def replay(self, fed: Container[str] = ()) -> Replay | None:
        return None

    def release(self) -> None:
        self._alone.release()
        super().release()


class _ComparedRuns(PlanRuns):
    """Runs of a plan in which each dispatch is followed by that of the plan with separate memory."""

    def __init__(self, device: Device, executable: Executable, alone: Executable) -> None:
        super().__init__(executable.plan, device, executable.memory, executable.recordings)
        self._alone = alone
        self._begun_values: set[str] = set()

    async def run(
        self,
        values: MutableMapping[str, HostValue],
        bound: Mapping[str, int],
        observe: Observer | None = None,
        sizes: Sequence[int] = (),
    ) -> None:
        async with self._memory.arenas.alone():
            self._begun_values = set()
            for name, buffer in bound.items():
                size = min(self._device.ledger.live[b] for b in (buffer, self._alone.resident[name]))
                self._device.copy([(Slice(buffer, 0, size), Slice(self._alone.resident[name], 0, size))])
            sized = self.sized(sizes) if self._plan.sizes else Sized()
            await self._run(values, self._recordings.of(bound), observe, sized)

    async def _segment(
        self,
        step: GpuSegment,
        number: int,
        values: MutableMapping[str, HostValue],
        recorded: Recorded,
        measure: bool,
        sized: Sized,
    ) -> Measured | None:
        twin = self._alone.plan.steps[number]
        assert isinstance(twin, GpuSegment) and len(twin.commands) == len(step.commands)
        here, there = recorded.external, self._alone.recordings.of({}).external
        writes = [*self.writes(step, values, here, sized), *self._alone.runs.writes(twin, values, there, sized)]
        await self._submit([], writes, [], sized)
        order = order_of(len(step.commands), step.repeated, lambda r: r.trips(sized.numbers))
        for place in order:
            await self._compare(place, step.commands[place], twin.commands[place], here, there, sized)
        answers = await self._submit([], [], self.reads(step, here, sized), sized)
        arrived(step, answers, values, sized)
        return Measured(answers, [(0, 0)] * len(order), "host") if measure else None

    async def _compare(
        self, place: int, command: Command, twin: Command, here: list[int], there: list[int], sized: Sized
    ) -> None:
        """Run one dispatch in both memories, and compare everything it wrote."""
        poison, reads, names = list[Write](), list[Read](), list[str]()
        for access, other in zip(command.accesses, twin.accesses, strict=True):
            nbytes = sized.numbers[access.scaled] if access.scaled >= 0 else access.nbytes
            if not access.write or not nbytes:
                continue
            mine = self._memory.slice(command.region(access), here, nbytes)
            own = self._alone.memory.slice(twin.region(other), there, nbytes)
            if access.value not in self._begun_values:
                in_place = sum(a.region == access.region for a in command.accesses) > 1
                data = bytes([POISON]) * nbytes
                poison += [Write(target, data) for target in ((own,) if in_place else (mine, own))]
                self._begun_values.add(access.value)
            reads += [Read(mine), Read(own)]
            names.append(access.value)
        bound = [self._memory.bind(command, here), self._alone.memory.bind(twin, there)]
        answers = await self._submit(bound, poison, reads, sized)
        for name, read, *raws in zip(names, reads[::2], answers[::2], answers[1::2], strict=True):
            a, b = (_plain(raw, read.source.nbytes) for raw in raws)
            if a != b:
                raise Fail(self._message(place, command, name, a, b))

    def _message(self, place: int, command: Command, value: str, a: bytes, b: bytes) -> str:
        differing = [i for i in range(0, len(a), 4) if a[i : i + 4] != b[i : i + 4]]
        at = differing[0]
        node = self._plan.assignments[command.node]
        return (
            f"pyruntime.sanitize: dispatch {place}, kernel {command.kernel} of node '{node.name}' ({node.op_type}), "
            f"gives different bits in the plan's memory and in separate memory: '{value}' has "
            f"0x{a[at : at + 4][::-1].hex()} instead of 0x{b[at : at + 4][::-1].hex()} at byte {at}, and "
            f"{len(differing)} of {-(-len(a) // 4)} words differ. "
            "Please report it with the model; `pyruntime.disable` (docs/SWITCHES.md) leaves out passes and kernels"
        )

    async def _submit(self, commands: list[Bound], writes: list[Write], reads: list[Read], sized: Sized) -> list[Raw]:
        recording = self._device.record(commands)
        try:
            return await self._device.submit(recording, writes, reads, sized.numbers)
        finally:
            self._device.drop(recording)


def _plain(raw: Raw, nbytes: int) -> bytes:
    return bytes(raw if isinstance(raw, bytes | memoryview) else raw.read(0, nbytes))

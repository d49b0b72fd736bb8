"""A plan on a device: pipelines compiled, weights uploaded, memory allocated, commands recorded; ready to run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from pyruntime.device.base import Bound, Device, Measured, Raw, Read, Slice, Write
from pyruntime.errors import OutOfMemory
from pyruntime.ir import Constant, HostTensor, Node, TensorType, ValueType, known
from pyruntime.ops.base import Op
from pyruntime.ops.interpreter import current, execute, located
from pyruntime.plan.memory import round_up
from pyruntime.plan.plan import GpuSegment, HostStep, Plan, Region, Space

__all__ = ["Executable", "HostValue", "Observer", "Recorded", "Weights", "arrived", "host_value", "run_on_host"]

HostValue: TypeAlias = HostTensor | ValueType
"""A value on the host: a tensor, or the known type of a sequence, optional or map."""

_CHUNK = 4 << 20
"""Bytes: constants smaller than this share buffers of this size."""

_RECORDED = 8
"""Sets of bound buffers whose recordings are kept."""

Observer: TypeAlias = Callable[[Plan, int, float, Measured | None], None]
"""Called after each step of a measured run: plan, number of the step, when it began (`time.perf_counter`), and for
GPU segments what was measured."""


@dataclass(slots=True)
class Recorded:
    """GPU segments recorded for one set of external buffers: recordings by number of the step."""

    external: list[int]
    recordings: dict[int, int]


class Weights:
    """Constants on the device, each uploaded once and shared by all plans of a session."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._slices: dict[tuple[int, int, int], Slice] = {}
        self._sources: list[Any] = []
        self._buffers: list[int] = []

    @staticmethod
    def _key(constant: Constant) -> tuple[int, int, int]:
        return id(constant.source), constant.offset, constant.nbytes

    async def load(self, constants: list[Constant]) -> None:
        """Upload those that are not there yet, small ones packed into common buffers."""
        fresh = {self._key(c): c for c in constants if self._key(c) not in self._slices}
        groups: list[list[Constant]] = []
        room = 0
        for constant in sorted(fresh.values(), key=lambda c: -c.nbytes):
            size = round_up(constant.nbytes)
            if size > room:
                groups.append([])
                room = max(_CHUNK, size) if size < _CHUNK else size
            groups[-1].append(constant)
            room -= size
        sizes = [sum(round_up(c.nbytes) for c in group) for group in groups]
        buffers = await self._device.allocate(sizes, "weights")
        self._buffers += buffers
        places: dict[tuple[int, int, int], Slice] = {}
        writes = []
        for buffer, group in zip(buffers, groups, strict=True):
            offset = 0
            for constant in group:
                place = Slice(buffer, offset, constant.nbytes)
                if constant.nbytes:
                    writes.append(Write(place, constant.source, constant.offset))
                places[self._key(constant)] = place
                offset += round_up(constant.nbytes)
        await self._device.upload(writes)
        self._slices |= places
        self._sources += [c.source for c in fresh.values()]

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        return sum(round_up(place.nbytes) for place in self._slices.values())

    def missing(self, constants: Iterable[Constant]) -> int:
        """Bytes that `load` would allocate for these."""
        fresh = {self._key(c): c.nbytes for c in constants}
        return sum(round_up(nbytes) for key, nbytes in fresh.items() if key not in self._slices)

    def slice(self, constant: Constant) -> Slice:
        """Where a loaded constant is."""
        return self._slices[self._key(constant)]

    def release(self) -> None:
        """Free the buffers."""
        self._device.free(self._buffers)
        self._buffers, self._slices, self._sources = [], {}, []


@dataclass(frozen=True, slots=True)
class Replay:
    """A run as data: a recording, and the tensors (name, type, place) written before and read after it."""

    recording: int
    uploads: tuple[tuple[str, TensorType, Slice], ...]
    downloads: tuple[tuple[str, TensorType, Slice], ...]


class Executable:
    """A plan that can run.

    Attributes:
        resident: buffers of tensors that stay on the GPU between stages, by value name.
        bound: names of external tensors that each run brings, in buffers of its own.
        on_release: called once when the executable is released.
    """

    def __init__(
        self, plan: Plan, device: Device, weights: Weights, resident: Mapping[str, int], bound: Iterable[str] = ()
    ) -> None:
        self.plan = plan
        self.resident = dict(resident)
        self.bound = frozenset(bound)
        self._device = device
        self._weights = weights
        self._arenas: list[int] = []
        self._params: list[int] = []
        self._own: list[int] = []
        self._recorded: dict[tuple[int, ...], Recorded] = {}
        self._lock = asyncio.Lock()
        self._overlapping = 0
        self._last_of_them = asyncio.Event()
        self.on_release: list[Callable[[], None]] = []

    async def prepare(self) -> None:
        """Compile, upload, allocate; record where no run brings buffers of its own.

        Raises:
            OutOfMemory, EngineError: nothing this executable allocated is kept.
        """
        plan, device = self.plan, self._device
        limit = device.target.limits.buffer_bytes
        over = [size for size in plan.arenas if size > limit]
        if over:
            raise OutOfMemory(
                f"the plan needs one buffer of {max(over):,} bytes and the device allows {limit:,}; "
                "use smaller inputs or the CPU provider"
            )
        try:
            # Both are waited for also when one fails: what the other allocates meanwhile has to be freed.
            together = device.compile(plan.shaders), self._weights.load(plan.constants)
            for outcome in await asyncio.gather(*together, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    raise outcome
            self._arenas = await device.allocate(plan.arenas, "arena")
            fresh = [t for t in plan.external if t.name not in self.resident and t.name not in self.bound]
            made = await device.allocate([round_up(t.type.nbytes) for t in fresh], "resident")
            self._own += made
            self.resident.update(zip((t.name for t in fresh), made, strict=True))
            if plan.params:
                self._params = await device.allocate([len(plan.params)], "params")
                device.write(Slice(self._params[0], 0, len(plan.params)), plan.params)
            if not any(t.name in self.bound for t in plan.external):
                self._record({})
        except BaseException:
            self.release()
            raise

    def _record(self, bound: Mapping[str, int]) -> Recorded:
        """The recordings for these buffers: made once, the oldest forgotten."""
        transfers = self.plan.external
        key = tuple(bound[t.name] for t in transfers if t.name in self.bound)
        made = self._recorded.pop(key, None)
        if made is None:
            external = [0] * (1 + max((t.region.index for t in transfers), default=-1))
            for t in transfers:
                external[t.region.index] = bound[t.name] if t.name in self.bound else self.resident[t.name]
            segments = {n: s for n, s in enumerate(self.plan.steps) if isinstance(s, GpuSegment)}
            recordings = {
                n: self._device.record([self._bind(c, external) for c in s.commands]) for n, s in segments.items()
            }
            made = Recorded(external, recordings)
            if len(self._recorded) >= _RECORDED:
                self._forget(self._recorded.pop(next(iter(self._recorded))))
        self._recorded[key] = made
        return made

    def _forget(self, recorded: Recorded) -> None:
        for recording in recorded.recordings.values():
            self._device.drop(recording)

    def _slice(self, region: Region, external: list[int], nbytes: int | None = None) -> Slice:
        nbytes = region.nbytes if nbytes is None else nbytes
        if region.space is Space.WEIGHTS:
            place = self._weights.slice(self.plan.constants[region.index])
            return Slice(place.buffer, place.offset, nbytes)
        buffers = self._arenas if region.space is Space.ARENA else external
        return Slice(buffers[region.index], region.offset, nbytes)

    def _bind(self, command: Any, external: list[int]) -> Bound:
        uniform = Slice(self._params[0], *command.params) if command.params else None
        storage = tuple(self._slice(r, external) for r in command.regions)
        return Bound(self.plan.shaders[command.shader], storage, uniform, command.grid, command.kernel)

    @property
    def external(self) -> list[int]:
        """The buffers of the plan's external tensors, where no run brings any."""
        return self._record({}).external

    def replay(self) -> Replay | None:
        """What it takes to run this without Python; None unless it is one GPU segment in memory of its own."""
        step = self.plan.steps[0] if len(self.plan.steps) == 1 else None
        if not isinstance(step, GpuSegment) or self.bound:
            return None
        recorded = self._record({})
        uploads, downloads = (
            tuple((t.name, t.type, self._slice(t.region, recorded.external, t.type.nbytes)) for t in transfers)
            for transfers in (step.uploads, step.downloads)
        )
        return Replay(recorded.recordings[0], uploads, downloads)

    async def run(
        self,
        values: MutableMapping[str, HostValue],
        bound: Mapping[str, int] | None = None,
        observe: Observer | None = None,
    ) -> None:
        """Run all steps; `values` holds the inputs and receives what comes back to the host.

        Plans of one GPU segment may overlap: their writes, dispatches and copies are queued in one go. Others, and runs
        that are measured, run one at a time: all runs have the same memory. Between steps the check of the `RunContext`
        is called and may raise.

        Args:
            bound: a buffer for each external tensor that this run brings; no buffer twice.
            observe: called after each step, which is then measured: slower as a whole.
        """
        if len(self.plan.steps) > 1 or observe is not None:
            async with self._lock:
                while self._overlapping:
                    self._last_of_them.clear()
                    await self._last_of_them.wait()
                await self._run(values, self._record(bound or {}), observe)
            return
        while self._lock.locked():
            async with self._lock:
                pass
        self._overlapping += 1
        try:
            await self._run(values, self._record(bound or {}), None)
        finally:
            self._overlapping -= 1
            if not self._overlapping:
                self._last_of_them.set()

    async def _run(self, values: MutableMapping[str, HostValue], recorded: Recorded, observe: Observer | None) -> None:
        for number, step in enumerate(self.plan.steps):
            if (check := current().check) is not None:
                check()
            began = time.perf_counter()
            measured = None
            if isinstance(step, HostStep):
                self._host(step, values)
            else:
                measured = await self._segment(step, number, values, recorded, observe is not None)
            if observe is not None:
                observe(self.plan, number, began, measured)

    async def _segment(
        self,
        step: GpuSegment,
        number: int,
        values: MutableMapping[str, HostValue],
        recorded: Recorded,
        measure: bool,
    ) -> Measured | None:
        writes = self._writes(step, values, recorded.external)
        reads = self._reads(step, recorded.external)
        measured: Measured | None = None
        answers: list[Raw]
        if measure:
            measured = await self._device.measure(recorded.recordings[number], writes, reads)
            answers = measured.answers
        else:
            answers = await self._device.submit(recorded.recordings[number], writes, reads)
        arrived(step, answers, values)
        return measured

    def _writes(self, step: GpuSegment, values: Mapping[str, HostValue], external: list[int]) -> list[Write]:
        """What a segment uploads; empty tensors are not sent."""
        writes = []
        for transfer in step.uploads:
            tensor = values[transfer.name]
            assert isinstance(tensor, HostTensor)
            if transfer.type.nbytes:
                place = self._slice(transfer.region, external, transfer.type.nbytes)
                writes.append(Write(place, tensor.bytes()))
        return writes

    def _reads(self, step: GpuSegment, external: list[int]) -> list[Read]:
        """What a segment reads back, but for empty tensors."""
        wanted = (t for t in step.downloads if t.type.nbytes)
        return [Read(self._slice(t.region, external, t.type.nbytes)) for t in wanted]

    def _host(self, step: HostStep, values: MutableMapping[str, HostValue]) -> None:
        inputs: list[ValueType | None] = []
        for name, kind in zip(step.node.inputs, step.inputs, strict=True):
            if not name:
                inputs.append(None)
                continue
            value = values.get(name, kind)
            assert value is not None
            inputs.append(value.known(name) if isinstance(value, HostTensor) else value)
        run_on_host(step.node, inputs, values)

    def own(self, buffers: Iterable[int]) -> None:
        """Free these buffers too when this executable is released."""
        self._own += buffers

    def keep_resident(self) -> dict[str, int]:
        """Free everything but the resident tensors, whose buffers become the caller's."""
        kept, self._own = dict(self.resident), []
        self.release()
        return kept

    def release(self) -> None:
        """Free what this executable allocated; weights stay with the session."""
        for told in self.on_release:
            told()
        self.on_release.clear()
        for recorded in self._recorded.values():
            self._forget(recorded)
        self._device.free([*self._arenas, *self._params, *self._own])
        self._recorded, self._arenas, self._params, self._own = {}, [], [], []


def arrived(step: GpuSegment, answers: Iterable[Raw], values: MutableMapping[str, HostValue]) -> None:
    """Put what a segment read back into `values`."""
    raws = iter(answers)
    for transfer in step.downloads:
        values[transfer.name] = HostTensor(transfer.type, next(raws) if transfer.type.nbytes else b"")


def run_on_host(node: Node, inputs: list[ValueType | None], values: MutableMapping[str, HostValue]) -> None:
    """Evaluate one node on NumPy and put its outputs into `values`."""
    import numpy as np

    op = node.op
    assert isinstance(op, Op)
    with located(node, inputs), np.errstate(all="ignore"):
        results = execute(op, *inputs)
    for name, result in zip(node.outputs, results, strict=False):
        if name and result is not None:
            values[name] = host_value(result)


def host_value(kind: ValueType) -> HostValue:
    """A known value as the host keeps it."""
    if isinstance(kind, TensorType):
        return HostTensor(kind, None, kind.value())
    return known(kind, kind.value())

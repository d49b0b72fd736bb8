"""A plan on a device: pipelines compiled, weights uploaded, memory allocated, commands recorded; ready to run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any, TypeAlias

from pyruntime.device.base import Bound, Device, Read, Slice, Write
from pyruntime.errors import OutOfMemory
from pyruntime.ir import Constant, HostTensor, Node, TensorType, ValueType, known
from pyruntime.ops.base import Op
from pyruntime.ops.interpreter import execute, located
from pyruntime.plan.memory import round_up
from pyruntime.plan.plan import GpuSegment, HostStep, Plan, Region, Space

__all__ = ["Executable", "HostValue", "Weights", "run_on_host"]

HostValue: TypeAlias = HostTensor | ValueType
"""A value on the host: a tensor, or the known type of a sequence, optional or map."""

_CHUNK = 4 << 20
"""Bytes: constants smaller than this share buffers of this size."""


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
        for buffer, group in zip(buffers, groups, strict=True):
            offset = 0
            for constant in group:
                place = Slice(buffer, offset, constant.nbytes)
                if constant.nbytes:
                    self._device.write(place, constant.source, constant.offset)
                self._slices[self._key(constant)] = place
                self._sources.append(constant.source)
                offset += round_up(constant.nbytes)

    def slice(self, constant: Constant) -> Slice:
        """Where a loaded constant is."""
        return self._slices[self._key(constant)]

    def release(self) -> None:
        """Free the buffers."""
        self._device.free(self._buffers)
        self._buffers, self._slices, self._sources = [], {}, []


class Executable:
    """A plan that can run.

    Attributes:
        resident: buffers of tensors that stay on the GPU between stages, by value name.
    """

    def __init__(self, plan: Plan, device: Device, weights: Weights, resident: Mapping[str, int]) -> None:
        self.plan = plan
        self.resident = dict(resident)
        self._device = device
        self._weights = weights
        self._arenas: list[int] = []
        self._params: list[int] = []
        self._external: list[int] = []
        self._own: list[int] = []
        self._recordings: dict[int, int] = {}
        self._lock = asyncio.Lock()

    async def prepare(self) -> None:
        """Compile, upload, allocate, record.

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
            await asyncio.gather(device.compile(plan.shaders), self._weights.load(plan.constants))
            self._arenas = await device.allocate(plan.arenas, "arena")
            fresh = [t for t in plan.external if t.name not in self.resident]
            made = await device.allocate([round_up(t.type.nbytes) for t in fresh], "resident")
            self._own += made
            self.resident.update(zip((t.name for t in fresh), made, strict=True))
            self._external = [0] * (1 + max((t.region.index for t in plan.external), default=-1))
            for transfer in plan.external:
                self._external[transfer.region.index] = self.resident[transfer.name]
            if plan.params:
                self._params = await device.allocate([len(plan.params)], "params")
                device.write(Slice(self._params[0], 0, len(plan.params)), plan.params)
            for number, step in enumerate(plan.steps):
                if isinstance(step, GpuSegment):
                    self._recordings[number] = device.record([self._bind(c) for c in step.commands])
        except BaseException:
            self.release()
            raise

    def _slice(self, region: Region) -> Slice:
        if region.space is Space.WEIGHTS:
            place = self._weights.slice(self.plan.constants[region.index])
            return Slice(place.buffer, place.offset, region.nbytes)
        buffers = self._arenas if region.space is Space.ARENA else self._external
        return Slice(buffers[region.index], region.offset, region.nbytes)

    def _bind(self, command: Any) -> Bound:
        uniform = Slice(self._params[0], *command.params) if command.params else None
        storage = tuple(self._slice(r) for r in command.regions)
        return Bound(self.plan.shaders[command.shader], storage, uniform, command.grid, command.kernel)

    async def run(self, values: MutableMapping[str, HostValue]) -> None:
        """Run all steps; `values` holds the inputs and receives what comes back to the host.

        Plans of one GPU segment may overlap: their writes, dispatches and copies are queued in one go. Others run one
        at a time.
        """
        if len(self.plan.steps) <= 1:
            await self._run(values)
        else:
            async with self._lock:
                await self._run(values)

    async def _run(self, values: MutableMapping[str, HostValue]) -> None:
        for number, step in enumerate(self.plan.steps):
            if isinstance(step, HostStep):
                self._host(step, values)
                continue
            writes = []
            for transfer in step.uploads:
                tensor = values[transfer.name]
                assert isinstance(tensor, HostTensor)
                place = self._slice(transfer.region)
                if transfer.type.nbytes:
                    writes.append(Write(Slice(place.buffer, place.offset, transfer.type.nbytes), tensor.bytes()))
            wanted = [t for t in step.downloads if t.type.nbytes]
            reads = []
            for transfer in wanted:
                place = self._slice(transfer.region)
                reads.append(Read(Slice(place.buffer, place.offset, transfer.type.nbytes)))
            answers = await self._device.submit(self._recordings[number], writes, reads)
            for transfer, raw in zip(wanted, answers, strict=True):
                values[transfer.name] = HostTensor(transfer.type, raw)
            for transfer in step.downloads:
                if not transfer.type.nbytes:
                    values[transfer.name] = HostTensor(transfer.type, b"")

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
        for recording in self._recordings.values():
            self._device.drop(recording)
        self._device.free([*self._arenas, *self._params, *self._own])
        self._recordings, self._arenas, self._params, self._own = {}, [], [], []


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

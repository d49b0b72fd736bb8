"""A plan on a device: pipelines compiled, weights uploaded, memory allocated, commands recorded; ready to run."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pyruntime.compiler.plan import Bounded, GpuSegment, HostStep, Kept, Numbers, Plan, Transfer, Unread
from pyruntime.device.base import Device, Measured, Raw, Read, Slice, Write
from pyruntime.device.execution.arenas import Arenas
from pyruntime.device.execution.plan_memory import Compute, PlanMemory
from pyruntime.device.execution.recordings import Recorded, Recordings
from pyruntime.device.execution.together import all_of
from pyruntime.device.execution.weights import Weights
from pyruntime.ir import HostTensor
from pyruntime.ops.host import HostValue, run_on_host
from pyruntime.ops.interpreter import current

__all__ = ["Executable", "Observer", "Replay", "Sized", "arrived", "shares_arenas"]

Observer: TypeAlias = Callable[[Plan, int, float, Measured | None, Sequence[int]], None]
"""Called after each step of a measured run: plan, number of the step, when it began (`time.perf_counter`), for GPU
segments what was measured, and the run's dynamic sizes."""


@dataclass(frozen=True, slots=True)
class Sized:
    """What one run's sizes make of a plan: the values of its expressions, and the parameters (None: as they are)."""

    numbers: tuple[int, ...] = ()
    params: bytes | None = None
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Replay:
    """A run as data: a recording, and the tensors (name, type, place) written before and read after it.

    Attributes:
        recording: where runs bring buffers, with slots for them, numbered as `Plan.external`.
        inputs, outputs: tensors on the device that a run brings and makes. kept: outputs in the memory of inputs.
        unread: inputs on the host of which only the type counts. bounds: integers that those on the host have to be.
    """

    recording: int
    uploads: tuple[tuple[Transfer, Slice], ...]
    downloads: tuple[tuple[Transfer, Slice], ...]
    params: Slice | None
    numbers: tuple[tuple[Numbers, Slice], ...] = ()
    inputs: tuple[Transfer, ...] = ()
    outputs: tuple[Transfer, ...] = ()
    kept: tuple[Kept, ...] = ()
    unread: tuple[Unread, ...] = ()
    bounds: tuple[Bounded, ...] = ()


class Executable:
    """A plan that can run.

    Attributes:
        runs: how many were begun.
        on_release: called once when the executable is released.
        on_move: called each time its memory has become another one: what was recorded is void.
        waited: milliseconds that parts of `prepare`, which are under way at once, took until each was done.

    Args:
        resident: buffers of tensors that earlier stages left, by value name.
        bound: names of external tensors that each run brings, in buffers of its own.
        arenas: shared with other plans; without, and where a run is queued piece by piece, memory is its own.
    """

    def __init__(
        self,
        plan: Plan,
        device: Device,
        weights: Weights,
        resident: Mapping[str, int],
        bound: Iterable[str] = (),
        arenas: Arenas | None = None,
    ) -> None:
        self.plan = plan
        self.runs = 0
        self.on_release: list[Callable[[], None]] = []
        self.on_move: list[Callable[[], None]] = []
        self.waited: dict[str, float] = {}
        self._device = device
        arenas = arenas if arenas is not None and shares_arenas(plan) else Arenas(device)
        self._memory = PlanMemory(plan, device, weights, resident, bound, arenas)
        self._recordings = Recordings(plan, device, self._memory)
        self._sized: tuple[tuple[int, ...], Sized] = ((), Sized())

    @property
    def resident(self) -> Mapping[str, int]:
        """Buffers of tensors that stay on the GPU between stages, by value name."""
        return self._memory.resident

    @property
    def bound(self) -> frozenset[str]:
        """Names of external tensors that each run brings."""
        return self._memory.bound

    async def prepare(self, compute: Compute | None = None) -> None:
        """Compile, upload, allocate, record.

        Args:
            compute: makes further resident tensors.

        Raises:
            OutOfMemory, EngineError: nothing this executable allocated is kept.
        """
        self._memory.check()
        try:
            # Pipelines are begun with when this is called: what is recorded meanwhile names those.
            await all_of(
                self._timed("pipelines", lambda: self._device.compile(self.plan.shaders)),
                self._fill(compute),
            )
        except BaseException:
            self.release()
            raise

    async def _fill(self, compute: Compute | None) -> None:
        """Memory with what is in it, and the recordings, which bind it."""
        memory = self._memory
        await all_of(
            self._timed("allocate", lambda: memory.allocate(self._moved)),
            self._timed("weights", memory.load),
            self._timed("computed", lambda: self._compute(compute)),
        )
        await memory.allocate_resident()
        _ = self._recordings.open

    async def _timed(self, name: str, part: Callable[[], Awaitable[None]]) -> None:
        began = time.perf_counter()
        try:
            await part()
        finally:
            self.waited[name] = (time.perf_counter() - began) * 1000

    async def _compute(self, compute: Compute | None) -> None:
        await self._memory.compute(compute)

    def _moved(self) -> None:
        self._recordings.forget()
        for told in self.on_move:
            told()

    def replay(self, fed: Container[str] = ()) -> Replay | None:
        """What it takes to run this without Python; None unless it is one GPU segment.

        Args:
            fed: inputs on the device, as against outputs that stay there.
        """
        step = self.plan.steps[0] if len(self.plan.steps) == 1 else None
        if not isinstance(step, GpuSegment):
            return None
        memory = self._memory
        bound = [t for t in self.plan.external if t.name in memory.bound]
        external = memory.external({})
        uploads, downloads = (
            tuple((t, memory.slice(t.region, external)) for t in transfers)
            for transfers in (step.uploads, step.downloads)
        )
        return Replay(
            self._recordings.open[0],
            uploads,
            downloads,
            memory.params if self.plan.patches else None,
            tuple((n, memory.slice(n.transfer.region, external)) for n in step.numbers),
            tuple(t for t in bound if t.name in fed),
            tuple(t for t in bound if t.name not in fed),
            tuple(self.plan.kept),
            tuple(self.plan.unread),
            tuple(self.plan.bounds),
        )

    def sized(self, sizes: Sequence[int]) -> Sized:
        """What these sizes make of the plan; kept for the next run of the same."""
        key = tuple(sizes)
        if self._sized[0] != key:
            numbers = tuple(self.plan.numbers(key))
            self._sized = key, Sized(numbers, self.plan.patched(numbers) if self.plan.patches else None, key)
        return self._sized[1]

    async def run(
        self,
        values: MutableMapping[str, HostValue],
        bound: Mapping[str, int] | None = None,
        observe: Observer | None = None,
        sizes: Sequence[int] = (),
    ) -> None:
        """Run all steps; `values` holds the inputs and receives what comes back to the host.

        Plans of one GPU segment may overlap: their writes, dispatches and copies are queued in one go. Others, and runs
        that are measured, run one at a time: all runs have the same memory. Between steps the check of the `RunContext`
        is called and may raise.

        Args:
            bound: a buffer for each external tensor that this run brings; no buffer twice.
            observe: called after each step, which is then measured: slower as a whole.
            sizes: values of the plan's dynamic sizes.
        """
        self.runs += 1
        sized = self.sized(sizes) if self.plan.sizes else Sized()
        alone = len(self.plan.steps) > 1 or observe is not None
        arenas = self._memory.arenas
        async with arenas.alone() if alone else arenas.overlapping():
            await self._run(values, self._recordings.of(bound or {}), observe, sized)

    async def _run(
        self, values: MutableMapping[str, HostValue], recorded: Recorded, observe: Observer | None, sized: Sized
    ) -> None:
        for number, step in enumerate(self.plan.steps):
            if (check := current().check) is not None:
                check()
            began = time.perf_counter()
            measured = None
            if isinstance(step, HostStep):
                run_on_host(step.node, step.inputs, values)
            else:
                measured = await self._segment(step, number, values, recorded, observe is not None, sized)
            if observe is not None:
                observe(self.plan, number, began, measured, sized.sizes)

    async def _segment(
        self,
        step: GpuSegment,
        number: int,
        values: MutableMapping[str, HostValue],
        recorded: Recorded,
        measure: bool,
        sized: Sized,
    ) -> Measured | None:
        writes = self._writes(step, values, recorded.external, sized)
        reads = self._reads(step, recorded.external, sized)
        measured: Measured | None = None
        answers: list[Raw]
        if measure:
            measured = await self._device.measure(recorded.recordings[number], writes, reads, sized.numbers)
            answers = measured.answers
        else:
            answers = await self._device.submit(recorded.recordings[number], writes, reads, sized.numbers)
        arrived(step, answers, values, sized)
        return measured

    def _writes(
        self, step: GpuSegment, values: Mapping[str, HostValue], external: list[int], sized: Sized
    ) -> list[Write]:
        """What a segment uploads, parameters for other sizes first; empty tensors are not sent.

        Parameters go with every run: another one may be queued between this and the last of these sizes.
        """
        writes = []
        if sized.params is not None:
            writes.append(Write(self._memory.params, sized.params))
        for transfer in step.uploads:
            tensor = values[transfer.name]
            assert isinstance(tensor, HostTensor)
            nbytes = transfer.sized(sized.numbers).nbytes
            if nbytes:
                writes.append(Write(self._memory.slice(transfer.region, external, nbytes), tensor.bytes()))
        for made in step.numbers:
            raw = made.raw(sized.numbers)
            writes.append(Write(self._memory.slice(made.transfer.region, external, len(raw)), raw))
        return writes

    def _reads(self, step: GpuSegment, external: list[int], sized: Sized) -> list[Read]:
        """What a segment reads back, but for empty tensors."""
        wanted = ((t.region, t.sized(sized.numbers).nbytes) for t in step.downloads)
        return [Read(self._memory.slice(region, external, nbytes)) for region, nbytes in wanted if nbytes]

    def keep_resident(self) -> dict[str, int]:
        """Free everything but the resident tensors, whose buffers become the caller's."""
        kept = self._memory.keep_resident()
        self.release()
        return kept

    def release(self) -> None:
        """Free what this executable allocated; constants that no other plan of the session uses go too."""
        for told in self.on_release:
            told()
        self.on_release.clear()
        self.on_move.clear()
        self._recordings.forget()
        self._memory.release()


def shares_arenas(plan: Plan) -> bool:
    """True where runs of the plan are queued in one go."""
    return len(plan.steps) == 1 and isinstance(plan.steps[0], GpuSegment)


def arrived(step: GpuSegment, answers: Iterable[Raw], values: MutableMapping[str, HostValue], sized: Sized) -> None:
    """Put what a segment read back into `values`."""
    raws = iter(answers)
    for transfer in step.downloads:
        kind = transfer.sized(sized.numbers)
        values[transfer.name] = HostTensor(kind, next(raws) if kind.nbytes else b"")

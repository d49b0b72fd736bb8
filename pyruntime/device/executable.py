"""A plan on a device: pipelines compiled, weights uploaded, memory allocated, commands recorded; ready to run."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pyruntime.device.arenas import Arenas
from pyruntime.device.base import Bound, Device, Measured, Raw, Read, Slice, Slot, Write
from pyruntime.device.on_host import HostValue, run_on_host
from pyruntime.device.together import all_of
from pyruntime.device.weights import Weights
from pyruntime.errors import OutOfMemory
from pyruntime.ir import HostTensor
from pyruntime.ops.interpreter import current
from pyruntime.plan.plan import GpuSegment, HostStep, Kept, Numbers, Plan, Region, Space, Transfer, Unread

__all__ = [
    "Compute",
    "Executable",
    "Observer",
    "Recorded",
    "Replay",
    "Sized",
    "arrived",
    "region_slice",
    "shares_arenas",
]

_RECORDED = 8
"""Sets of bound buffers whose recordings are kept."""

Compute: TypeAlias = Callable[[], Awaitable[Mapping[str, int]]]
"""Makes tensors on the GPU: their buffers by name."""

Observer: TypeAlias = Callable[[Plan, int, float, Measured | None, Sequence[int]], None]
"""Called after each step of a measured run: plan, number of the step, when it began (`time.perf_counter`), for GPU
segments what was measured, and the run's open sizes."""


@dataclass(slots=True)
class Recorded:
    """GPU segments recorded for one set of external buffers: recordings by number of the step."""

    external: list[int]
    recordings: dict[int, int]


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
        unread: inputs on the host of which only the type counts.
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


class Executable:
    """A plan that can run.

    Attributes:
        resident: buffers of tensors that stay on the GPU between stages, by value name.
        bound: names of external tensors that each run brings, in buffers of its own.
        runs: how many were begun.
        on_release: called once when the executable is released.
        on_move: called each time its memory has become another one: what was recorded is void.
        waited: milliseconds that parts of `prepare`, which are under way at once, took until each was done.

    Args:
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
        self.resident = dict(resident)
        self.bound = frozenset(bound)
        self._device = device
        self._weights = weights
        self._arenas = arenas if arenas is not None and shares_arenas(plan) else Arenas(device)
        self._params: list[int] = []
        self._own: list[int] = []
        self._written: dict[int, int] = {}
        self._recorded: dict[tuple[int, ...], Recorded] = {}
        self._loaded = False
        self.runs = 0
        self._sized: tuple[tuple[int, ...], Sized] = ((), Sized())
        self.on_release: list[Callable[[], None]] = []
        self.on_move: list[Callable[[], None]] = []
        self.waited: dict[str, float] = {}

    async def prepare(self, compute: Compute | None = None) -> None:
        """Compile, upload, allocate, record.

        Args:
            compute: makes further resident tensors.

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
            # Pipelines are begun with when this is called: what is recorded meanwhile names those.
            await all_of(
                self._timed("pipelines", lambda: device.compile(plan.shaders)),
                self._fill(compute),
            )
        except BaseException:
            self.release()
            raise

    async def _fill(self, compute: Compute | None) -> None:
        """Memory with what is in it, and the recordings, which bind it."""
        together: dict[str, Callable[[], Awaitable[None]]] = {
            "allocate": self._allocate,
            "weights": self._load,
            "computed": lambda: self._compute(compute),
        }
        await all_of(*(self._timed(name, part) for name, part in together.items()))
        fresh = [t for t in self.plan.external if t.name not in self.resident and t.name not in self.bound]
        made = await self._device.allocate([t.region.nbytes for t in fresh], "resident")
        self._own += made
        self.resident.update(zip((t.name for t in fresh), made, strict=True))
        self._recordings()

    async def _timed(self, name: str, part: Callable[[], Awaitable[None]]) -> None:
        began = time.perf_counter()
        try:
            await part()
        finally:
            self.waited[name] = (time.perf_counter() - began) * 1000

    async def _allocate(self) -> None:
        """Memory for activations and parameters."""
        await all_of(self._arenas.join(id(self), self.plan.arenas, self._moved), self._parameters())

    async def _parameters(self) -> None:
        if params := self.plan.params:
            self._params = await self._device.allocate([len(params)], "params")
            self._device.write(Slice(self._params[0], 0, len(params)), params)

    async def _load(self) -> None:
        await self._weights.load(self.plan.constants)
        self._loaded = True

    async def _compute(self, compute: Compute | None) -> None:
        if compute is not None:
            self.resident.update(await compute())

    def _recordings(self) -> dict[int, int]:
        """The GPU segments recorded, by number of the step, with slots for what runs bring; made once."""
        if not self._written:
            external = self._external({})
            for n, step in enumerate(self.plan.steps):
                if isinstance(step, GpuSegment):
                    self._written[n] = self._device.record([self._bind(c, external) for c in step.commands])
        return self._written

    def _external(self, bound: Mapping[str, int]) -> list[int]:
        """The buffers of the plan's external tensors; 0 for those that runs bring and that are not `bound`."""
        external = [0] * (1 + max((t.region.index for t in self.plan.external), default=-1))
        for t in self.plan.external:
            external[t.region.index] = bound.get(t.name, 0) if t.name in self.bound else self.resident[t.name]
        return external

    def _record(self, bound: Mapping[str, int]) -> Recorded:
        """The recordings for these buffers: made once, the oldest forgotten."""
        key = tuple(bound[t.name] for t in self.plan.external if t.name in self.bound)
        made = self._recorded.pop(key, None)
        if made is None:
            external = self._external(bound)
            recordings = self._recordings()
            if key:
                recordings = {n: self._device.bind(recording, external) for n, recording in recordings.items()}
            made = Recorded(external, recordings)
            if len(self._recorded) >= _RECORDED:
                self._forget(self._recorded.pop(next(iter(self._recorded))))
        self._recorded[key] = made
        return made

    def _forget(self, recorded: Recorded) -> None:
        for recording in recorded.recordings.values():
            self._device.drop(recording)

    def _forget_all(self) -> None:
        for recorded in self._recorded.values():
            self._forget(recorded)
        for recording in self._written.values():
            self._device.drop(recording)
        self._recorded, self._written = {}, {}

    def _moved(self) -> None:
        self._forget_all()
        for told in self.on_move:
            told()

    def _place(self, region: Region, external: list[int]) -> Slice:
        """`_slice`; a slot for what a run brings where its buffers are not there yet."""
        if region.space is Space.EXTERNAL and not external[region.index]:
            return Slot(region.index, 0, region.nbytes)
        return self._slice(region, external)

    def _slice(self, region: Region, external: list[int], nbytes: int | None = None) -> Slice:
        nbytes = region.nbytes if nbytes is None else nbytes
        if region.space is Space.EXTERNAL:
            # What a run brings may be smaller than the largest the plan is for.
            buffer = external[region.index]
            return Slice(buffer, region.offset, min(nbytes, self._device.ledger.live.get(buffer, nbytes)))
        return region_slice(region, nbytes, self.plan, self._weights, self._arenas.buffers)

    def _bind(self, command: Any, external: list[int]) -> Bound:
        uniform = Slice(self._params[0], *command.params) if command.params else None
        storage = tuple(self._place(r, external) for r in command.regions)
        source = self.plan.shaders[command.shader]
        return Bound(source, storage, uniform, command.grid, command.kernel, command.scaled)

    @property
    def external(self) -> list[int]:
        """The buffers of the plan's external tensors, where no run brings any."""
        return self._record({}).external

    def replay(self, fed: Container[str] = ()) -> Replay | None:
        """What it takes to run this without Python; None unless it is one GPU segment.

        Args:
            fed: inputs on the device, as against outputs that stay there.
        """
        step = self.plan.steps[0] if len(self.plan.steps) == 1 else None
        if not isinstance(step, GpuSegment):
            return None
        bound = [t for t in self.plan.external if t.name in self.bound]
        external = self._external({})
        uploads, downloads = (
            tuple((t, self._slice(t.region, external)) for t in transfers)
            for transfers in (step.uploads, step.downloads)
        )
        return Replay(
            self._recordings()[0],
            uploads,
            downloads,
            Slice(self._params[0], 0, len(self.plan.params)) if self.plan.patches else None,
            tuple((n, self._slice(n.transfer.region, external)) for n in step.numbers),
            tuple(t for t in bound if t.name in fed),
            tuple(t for t in bound if t.name not in fed),
            tuple(self.plan.kept),
            tuple(self.plan.unread),
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
            sizes: of the plan's open sizes.
        """
        self.runs += 1
        sized = self.sized(sizes) if self.plan.sizes else Sized()
        alone = len(self.plan.steps) > 1 or observe is not None
        async with self._arenas.alone() if alone else self._arenas.overlapping():
            await self._run(values, self._record(bound or {}), observe, sized)

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
            writes.append(Write(Slice(self._params[0], 0, len(sized.params)), sized.params))
        for transfer in step.uploads:
            tensor = values[transfer.name]
            assert isinstance(tensor, HostTensor)
            nbytes = transfer.sized(sized.numbers).nbytes
            if nbytes:
                writes.append(Write(self._slice(transfer.region, external, nbytes), tensor.bytes()))
        for made in step.numbers:
            raw = made.raw(sized.numbers)
            writes.append(Write(self._slice(made.transfer.region, external, len(raw)), raw))
        return writes

    def _reads(self, step: GpuSegment, external: list[int], sized: Sized) -> list[Read]:
        """What a segment reads back, but for empty tensors."""
        wanted = ((t.region, t.sized(sized.numbers).nbytes) for t in step.downloads)
        return [Read(self._slice(region, external, nbytes)) for region, nbytes in wanted if nbytes]

    def own(self, buffers: Iterable[int]) -> None:
        """Free these buffers too when this executable is released."""
        self._own += buffers

    def keep_resident(self) -> dict[str, int]:
        """Free everything but the resident tensors, whose buffers become the caller's."""
        kept, self._own = dict(self.resident), []
        self.release()
        return kept

    def release(self) -> None:
        """Free what this executable allocated; constants that no other plan of the session uses go too."""
        for told in self.on_release:
            told()
        self.on_release.clear()
        self.on_move.clear()
        self._forget_all()
        self._arenas.leave(id(self))
        self._device.free([*self._params, *self._own])
        if self._loaded:
            self._weights.drop({c.key for c in self.plan.constants})
            self._loaded = False
        self._params, self._own = [], []


def region_slice(region: Region, nbytes: int, plan: Plan, weights: Weights, arenas: Sequence[int]) -> Slice:
    """Where the first bytes of a region of constants or activations are."""
    if region.space is Space.WEIGHTS:
        place = weights.slice(plan.constants[region.index])
        return Slice(place.buffer, place.offset, nbytes)
    return Slice(arenas[region.index], region.offset, nbytes)


def shares_arenas(plan: Plan) -> bool:
    """True where runs of the plan are queued in one go."""
    return len(plan.steps) == 1 and isinstance(plan.steps[0], GpuSegment)


def arrived(step: GpuSegment, answers: Iterable[Raw], values: MutableMapping[str, HostValue], sized: Sized) -> None:
    """Put what a segment read back into `values`."""
    raws = iter(answers)
    for transfer in step.downloads:
        kind = transfer.sized(sized.numbers)
        values[transfer.name] = HostTensor(kind, next(raws) if kind.nbytes else b"")

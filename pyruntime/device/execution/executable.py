"""A plan prepared to run on a device: pipelines compiled, constants uploaded, memory allocated, commands recorded."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyruntime.compiler.plan import Bounded, Kept, Numbers, Plan, Transfer, Unread
from pyruntime.device.base import Device, Slice
from pyruntime.device.blocking import is_blocking
from pyruntime.device.execution.arenas import Arenas
from pyruntime.device.execution.concurrency import all_of
from pyruntime.device.execution.plan_memory import Compute, PlanMemory
from pyruntime.device.execution.plan_runs import PlanRuns
from pyruntime.device.execution.recordings import Recordings
from pyruntime.device.execution.weights import Weights

__all__ = ["Executable", "Replay", "shares_arenas"]


@dataclass(frozen=True, slots=True)
class Replay:
    """A run as data: a recording, and the tensors (name, type, slice) written before it and read back after it.

    Attributes:
        recording: its slots are numbered as `Plan.external`.
        inputs, outputs: tensors on the device, in buffers that each run brings. kept: outputs in the memory of inputs.
        unread: host inputs of which only the type matters. bounds: integer host inputs, with the range they must be in.
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
    """A plan prepared to run: its memory, its recordings and its runs.

    Attributes:
        on_release: called once, when the executable is released.
        on_move: called each time the arenas move to other buffers, which makes recordings invalid.
        waited: milliseconds until each concurrent part of `prepare` was done, by name.

    Args:
        resident: buffers of tensors that earlier stages have left on the device, by value name.
        bound: names of external tensors whose buffers each run brings.
        arenas: shared with other plans, if runs are queued in one piece (`shares_arenas`); else memory is separate.
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
        self.on_release: list[Callable[[], None]] = []
        self.on_move: list[Callable[[], None]] = []
        self.waited: dict[str, float] = {}
        self._device = device
        arenas = arenas if arenas is not None and shares_arenas(plan) else Arenas(device)
        self.memory = PlanMemory(plan, device, weights, resident, bound, arenas)
        self.recordings = Recordings(plan, device, self.memory)
        self.runs = PlanRuns(plan, device, self.memory, self.recordings)

    @property
    def resident(self) -> Mapping[str, int]:
        """Buffers of the tensors that stay on the GPU between stages, by value name."""
        return self.memory.resident

    @property
    def bound(self) -> frozenset[str]:
        """Names of the external tensors whose buffers each run brings."""
        return self.memory.bound

    @property
    def arenas(self) -> Sequence[Arenas]:
        """What its activations are in."""
        return (self.memory.arenas,)

    async def prepare(self, compute: Compute | None = None) -> None:
        """Compile pipelines, upload constants, allocate memory, record commands.

        Args:
            compute: computes further resident tensors.

        Raises:
            OutOfMemory, EngineError: everything that was allocated has been freed.
        """
        self.memory.check()
        try:
            # Compilation starts first: recordings, made concurrently, refer to the started pipelines.
            if is_blocking():
                for source in self.plan.shaders:
                    self._device.ask(source)
                await self._fill(compute)
                await self._compile()
            else:
                await all_of(self._compile(), self._fill(compute))
        except BaseException:
            self.release()
            raise

    async def _compile(self) -> None:
        await self._timed("pipelines", lambda: self._device.compile(self.plan.shaders))

    async def _fill(self, compute: Compute | None) -> None:
        """Allocate and fill the memory, then record the commands, which bind it."""
        memory = self.memory
        await all_of(
            self._timed("allocate", lambda: memory.allocate(self._moved)),
            self._timed("weights", memory.load),
            self._timed("computed", lambda: self._compute(compute)),
        )
        await memory.allocate_resident()
        _ = self.recordings.open

    async def _timed(self, name: str, part: Callable[[], Awaitable[None]]) -> None:
        began = time.perf_counter()
        try:
            await part()
        finally:
            self.waited[name] = (time.perf_counter() - began) * 1000

    async def _compute(self, compute: Compute | None) -> None:
        await self.memory.compute(compute)

    def _moved(self) -> None:
        self.recordings.forget()
        for told in self.on_move:
            told()

    def replay(self, fed: Container[str] = ()) -> Replay | None:
        """Return the data to repeat runs without Python; None unless the plan is a single GPU segment.

        Args:
            fed: names of the external tensors that are inputs; the others are outputs.
        """
        step = self.plan.only_segment
        if step is None:
            return None
        memory = self.memory
        bound = [t for t in self.plan.external if t.name in memory.bound]
        external = memory.external({})
        uploads, downloads = (
            tuple((t, memory.slice(t.region, external)) for t in transfers)
            for transfers in (step.uploads, step.downloads)
        )
        return Replay(
            self.recordings.open[0],
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

    def keep_resident(self) -> dict[str, int]:
        """Free everything except the resident tensors; return their buffers, which the caller now owns."""
        kept = self.memory.keep_resident()
        self.release()
        return kept

    def release(self) -> None:
        """Free all memory of this executable, and release its constants."""
        for told in self.on_release:
            told()
        self.on_release.clear()
        self.on_move.clear()
        self.recordings.forget()
        self.memory.release()


def shares_arenas(plan: Plan) -> bool:
    """Return whether a plan's runs are queued in one piece, so that other plans may use the same arenas."""
    return plan.only_segment is not None

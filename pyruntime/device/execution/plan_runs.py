"""Runs of a prepared plan: uploads, submits and readbacks of each step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pyruntime.compiler.plan import GpuSegment, HostStep, Plan
from pyruntime.device.base import Device, Measured, Raw, Read, Write
from pyruntime.device.execution.plan_memory import PlanMemory
from pyruntime.device.execution.recordings import Recorded, Recordings
from pyruntime.ir import HostTensor
from pyruntime.ops.host import HostValue, run_on_host
from pyruntime.ops.interpreter import current

__all__ = ["Observer", "PlanRuns", "Sized", "arrived"]

Observer: TypeAlias = Callable[[Plan, int, float, Measured | None, Sequence[int]], None]
"""Called after each step of a measured run with the plan, the number of the step, its begin (`time.perf_counter`), the
measurement (None for host steps), and the run's dynamic sizes.
"""


@dataclass(frozen=True, slots=True)
class Sized:
    """A plan evaluated for one run's sizes.

    Attributes:
        numbers: values of the plan's expressions. params: parameters for these sizes; None: those of the plan.
        sizes: the dynamic sizes.
    """

    numbers: tuple[int, ...] = ()
    params: bytes | None = None
    sizes: tuple[int, ...] = ()


class PlanRuns:
    """Runs a plan with its memory and recordings on a device.

    Attributes:
        begun: number of runs that were started.
    """

    def __init__(self, plan: Plan, device: Device, memory: PlanMemory, recordings: Recordings) -> None:
        self.begun = 0
        self._plan, self._device, self._memory, self._recordings = plan, device, memory, recordings
        self._sized: tuple[tuple[int, ...], Sized] = ((), Sized())

    def sized(self, sizes: Sequence[int]) -> Sized:
        """Evaluate the plan for these sizes. The latest result is cached."""
        key = tuple(sizes)
        if self._sized[0] != key:
            numbers = tuple(self._plan.numbers(key))
            self._sized = key, Sized(numbers, self._plan.patched(numbers) if self._plan.patches else None, key)
        return self._sized[1]

    async def run(
        self,
        values: MutableMapping[str, HostValue],
        bound: Mapping[str, int],
        observe: Observer | None = None,
        sizes: Sequence[int] = (),
    ) -> None:
        """Run all steps. `values` holds the inputs on the host, and receives the outputs on the host.

        Runs of plans with a single GPU segment may overlap, since their writes, dispatches and copies are queued in one
        piece. Other runs, and measured ones, use the arenas exclusively. The check of the `RunContext` is called before
        each step and may raise.

        Args:
            bound: a buffer for each external tensor of the run; no buffer may occur twice.
            observe: called after each step; makes the run a measured one, which is slower.
            sizes: values of the plan's dynamic sizes.
        """
        self.begun += 1
        sized = self.sized(sizes) if self._plan.sizes else Sized()
        alone = len(self._plan.steps) > 1 or observe is not None
        arenas = self._memory.arenas
        async with arenas.alone() if alone else arenas.overlapping():
            await self._run(values, self._recordings.of(bound), observe, sized)

    async def _run(
        self, values: MutableMapping[str, HostValue], recorded: Recorded, observe: Observer | None, sized: Sized
    ) -> None:
        for number, step in enumerate(self._plan.steps):
            if (check := current().check) is not None:
                check()
            began = time.perf_counter()
            measured = None
            if isinstance(step, HostStep):
                run_on_host(step.node, step.inputs, values)
            else:
                measured = await self._segment(step, number, values, recorded, observe is not None, sized)
            if observe is not None:
                observe(self._plan, number, began, measured, sized.sizes)

    async def _segment(
        self,
        step: GpuSegment,
        number: int,
        values: MutableMapping[str, HostValue],
        recorded: Recorded,
        measure: bool,
        sized: Sized,
    ) -> Measured | None:
        writes = self.writes(step, values, recorded.external, sized)
        reads = self.reads(step, recorded.external, sized)
        measured: Measured | None = None
        answers: list[Raw]
        if measure:
            measured = await self._device.measure(recorded.recordings[number], writes, reads, sized.numbers)
            answers = measured.answers
        else:
            answers = await self._device.submit(recorded.recordings[number], writes, reads, sized.numbers)
        arrived(step, answers, values, sized)
        return measured

    def writes(
        self, step: GpuSegment, values: Mapping[str, HostValue], external: list[int], sized: Sized
    ) -> list[Write]:
        """Return the uploads of a segment, with parameters for the run's sizes first; empty tensors are left out.

        Parameters are written in every run, since a run with other sizes may be queued before it.
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

    def reads(self, step: GpuSegment, external: list[int], sized: Sized) -> list[Read]:
        """Return the readbacks of a segment; empty tensors are left out."""
        wanted = ((t.region, t.sized(sized.numbers).nbytes) for t in step.downloads)
        return [Read(self._memory.slice(region, external, nbytes)) for region, nbytes in wanted if nbytes]


def arrived(step: GpuSegment, answers: Iterable[Raw], values: MutableMapping[str, HostValue], sized: Sized) -> None:
    """Store the tensors that a segment read back in `values`."""
    raws = iter(answers)
    for transfer in step.downloads:
        kind = transfer.sized(sized.numbers)
        values[transfer.name] = HostTensor(kind, next(raws) if kind.nbytes else b"")

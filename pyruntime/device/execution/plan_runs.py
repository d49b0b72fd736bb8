"""Runs of a plan that is on a device: what is written, submitted and read back, step after step."""

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
"""Called after each step of a measured run: plan, number of the step, when it began (`time.perf_counter`), for GPU
segments what was measured, and the run's dynamic sizes."""


@dataclass(frozen=True, slots=True)
class Sized:
    """What one run's sizes make of a plan: the values of its expressions, and the parameters (None: as they are)."""

    numbers: tuple[int, ...] = ()
    params: bytes | None = None
    sizes: tuple[int, ...] = ()


class PlanRuns:
    """Runs a plan with the memory and the recordings it has on a device.

    Attributes:
        begun: how many runs were begun.
    """

    def __init__(self, plan: Plan, device: Device, memory: PlanMemory, recordings: Recordings) -> None:
        self.begun = 0
        self._plan, self._device, self._memory, self._recordings = plan, device, memory, recordings
        self._sized: tuple[tuple[int, ...], Sized] = ((), Sized())

    def sized(self, sizes: Sequence[int]) -> Sized:
        """Evaluate the plan for these sizes; kept for the next run of the same."""
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
        """Run all steps; `values` holds the inputs and receives what comes back to the host.

        Plans of one GPU segment may overlap: their writes, dispatches and copies are queued in one go. Others, and runs
        that are measured, run one at a time: all runs have the same memory. Between steps the check of the `RunContext`
        is called and may raise.

        Args:
            bound: a buffer for each external tensor that this run brings; no buffer twice.
            observe: called after each step, which is then measured: slower as a whole.
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
        """Return what a segment uploads, parameters for other sizes first; empty tensors are not sent.

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

    def reads(self, step: GpuSegment, external: list[int], sized: Sized) -> list[Read]:
        """Return what a segment reads back, without empty tensors."""
        wanted = ((t.region, t.sized(sized.numbers).nbytes) for t in step.downloads)
        return [Read(self._memory.slice(region, external, nbytes)) for region, nbytes in wanted if nbytes]


def arrived(step: GpuSegment, answers: Iterable[Raw], values: MutableMapping[str, HostValue], sized: Sized) -> None:
    """Put what a segment read back into `values`."""
    raws = iter(answers)
    for transfer in step.downloads:
        kind = transfer.sized(sized.numbers)
        values[transfer.name] = HostTensor(kind, next(raws) if kind.nbytes else b"")

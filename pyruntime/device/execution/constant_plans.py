"""Plans that only compute constants, submitted together: separate submits would each wait for the device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pyruntime.compiler.plan import Command, Plan, Region, Space
from pyruntime.device.base import Bound, Device, Slice
from pyruntime.device.execution.concurrency import all_of
from pyruntime.device.execution.plan_memory import region_slice
from pyruntime.device.execution.weights import Weights
from pyruntime.ir import Constant

__all__ = ["is_constant_plan", "run_constant_plans"]


def is_constant_plan(plan: Plan, device: Device) -> bool:
    """Return whether a plan only computes resident tensors from constants."""
    step = plan.only_segment
    plain = step is not None and not (step.uploads or step.downloads or step.numbers or plan.patches)
    return plain and max(plan.arenas, default=0) <= device.target.limits.buffer_bytes


async def run_constant_plans(plans: Sequence[Plan], device: Device, held: Weights, most: int) -> list[dict[str, int]]:
    """Run plans that satisfy `is_constant_plan`, with one allocation for all, and few uploads and submits.

    Args:
        held: the session's constants, which are not uploaded again.
        most: bytes of the constants that are there for these plans at a time; more where a command reads more.

    Returns:
        For each plan its tensors' buffers by name, which the caller now owns.

    Raises:
        OutOfMemory, EngineError: everything that was allocated has been freed.
    """
    scratch: list[int] = []
    kept: list[int] = []
    placed: list[_Placed] = []
    resident = [t.region.nbytes for p in plans for t in p.external]
    arenas = [s for p in plans for s in (*p.arenas, len(p.params)) if s]
    first = [
        _allocate(device, resident, "computed", kept),
        _allocate(device, arenas, "arena", scratch),
        device.compile(list(dict.fromkeys(s for p in plans for s in p.shaders))),
    ]
    try:
        for some in _groups(plans, most):
            weights = Weights(device, held)
            try:
                constants = {c.key: c for number, command in some for c in _constants(plans[number], command)}
                await all_of(*first, weights.load(list(constants.values())))
                if first:
                    first, placed = [], _placed(plans, device, iter(kept), iter(scratch))
                await _submit([placed[number].bound(command, weights) for number, command in some], device)
            finally:
                weights.release()
    except BaseException:
        device.free(kept)
        raise
    finally:
        device.free(scratch)
    return [{t.name: p.tensors[t.region.index] for t in p.plan.external} for p in placed]


async def _submit(commands: Sequence[Bound], device: Device) -> None:
    recording = device.record(commands)
    try:
        await device.submit(recording, [], [])
    finally:
        device.drop(recording)


def _constants(plan: Plan, command: Command) -> list[Constant]:
    """Return what a command reads."""
    return [plan.constants[r.index] for r in command.regions if r.space is Space.WEIGHTS]


def _groups(plans: Sequence[Plan], most: int) -> Iterator[list[tuple[int, Command]]]:
    """Split the commands of all plans, in their order, by the bytes of the constants that they read.

    Yields:
        Pairs of a plan's number and a command.
    """
    some: list[tuple[int, Command]] = []
    nbytes = 0
    for number, plan in enumerate(plans):
        for command in plan.commands:
            more = sum(c.nbytes for c in _constants(plan, command))
            if some and nbytes + more > most:
                yield some
                some, nbytes = [], 0
            some.append((number, command))
            nbytes += more
    yield some


async def _allocate(device: Device, sizes: Sequence[int], label: str, made: list[int]) -> None:
    """Allocate buffers of these sizes, and append their numbers to `made`."""
    made += await device.allocate(sizes, label)


class _Placed(NamedTuple):
    """A plan and its buffers: of tensors by their index, of arenas, and of parameters."""

    plan: Plan
    tensors: dict[int, int]
    arenas: list[int]
    params: int

    def bound(self, command: Command, weights: Weights) -> Bound:
        """Return a command bound to the buffers."""
        uniform = Slice(self.params, *command.params) if command.params else None
        storage = tuple(self._slice(r, weights) for r in command.regions)
        source = self.plan.shaders[command.shader]
        return Bound(source, storage, uniform, command.grid, command.kernel, command.scaled, int(command.flops))

    def _slice(self, region: Region, weights: Weights) -> Slice:
        if region.space is Space.EXTERNAL:
            return Slice(self.tensors[region.index], region.offset, region.nbytes)
        return region_slice(region, region.nbytes, self.plan, weights, self.arenas)


def _placed(plans: Sequence[Plan], device: Device, kept: Iterator[int], scratch: Iterator[int]) -> list[_Placed]:
    """Distribute buffers to plans, and write their parameters."""
    made = []
    for plan in plans:
        tensors = {t.region.index: next(kept) for t in plan.external}
        arenas = [next(scratch) for size in plan.arenas if size]
        params = next(scratch) if plan.params else 0
        if plan.params:
            device.write(Slice(params, 0, len(plan.params)), plan.params)
        made.append(_Placed(plan, tensors, arenas, params))
    return made

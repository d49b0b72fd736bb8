"""Plans that only compute constants, submitted together: separate submits would each wait for the device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyruntime.compiler.plan import GpuSegment, Plan, Region, Space
from pyruntime.device.base import Bound, Device, Slice
from pyruntime.device.execution.concurrency import all_of
from pyruntime.device.execution.plan_memory import region_slice
from pyruntime.device.execution.weights import Weights

__all__ = ["is_constant_plan", "run_constant_plans"]


def is_constant_plan(plan: Plan, device: Device) -> bool:
    """Return whether a plan only computes resident tensors from constants."""
    step = plan.steps[0] if len(plan.steps) == 1 else None
    plain = isinstance(step, GpuSegment) and not (step.uploads or step.downloads or step.numbers or plan.patches)
    return plain and max(plan.arenas, default=0) <= device.target.limits.buffer_bytes


async def run_constant_plans(plans: Sequence[Plan], device: Device, held: Weights) -> list[dict[str, int]]:
    """Run plans that satisfy `is_constant_plan`, with one allocation, one upload and one submit for all.

    Args:
        held: the session's constants, which are not uploaded again.

    Returns:
        For each plan its tensors' buffers by name, which the caller now owns.

    Raises:
        OutOfMemory, EngineError: everything that was allocated has been freed.
    """
    weights = Weights(device, held)
    scratch: list[int] = []
    kept: list[int] = []
    try:
        shaders = list(dict.fromkeys(s for p in plans for s in p.shaders))
        constants = list({c.key: c for p in plans for c in p.constants}.values())
        resident = [t.region.nbytes for p in plans for t in p.external]
        arenas = [s for p in plans for s in (*p.arenas, len(p.params)) if s]
        await all_of(
            _allocate(device, resident, "computed", kept),
            _allocate(device, arenas, "arena", scratch),
            weights.load(constants),
            device.compile(shaders),
        )
        made, commands = _bound(plans, device, weights, iter(kept), iter(scratch))
        recording = device.record(commands)
        try:
            await device.submit(recording, [], [])
        finally:
            device.drop(recording)
    except BaseException:
        device.free(kept)
        raise
    finally:
        device.free(scratch)
        weights.release()
    return made


async def _allocate(device: Device, sizes: Sequence[int], label: str, made: list[int]) -> None:
    """Allocate buffers of these sizes, and append their numbers to `made`."""
    made += await device.allocate(sizes, label)


def _bound(
    plans: Sequence[Plan], device: Device, weights: Weights, kept: Iterator[int], scratch: Iterator[int]
) -> tuple[list[dict[str, int]], list[Bound]]:
    """Return the tensors of each plan by name, and the commands of all plans bound to their memory."""
    made: list[dict[str, int]] = []
    commands: list[Bound] = []
    for plan in plans:
        tensors = {t.region.index: next(kept) for t in plan.external}
        arenas = [next(scratch) for size in plan.arenas if size]
        params = next(scratch) if plan.params else 0
        if plan.params:
            device.write(Slice(params, 0, len(plan.params)), plan.params)

        def place(
            region: Region, plan: Plan = plan, tensors: dict[int, int] = tensors, arenas: list[int] = arenas
        ) -> Slice:
            if region.space is Space.EXTERNAL:
                return Slice(tensors[region.index], region.offset, region.nbytes)
            return region_slice(region, region.nbytes, plan, weights, arenas)

        step = plan.steps[0]
        assert isinstance(step, GpuSegment)
        for c in step.commands:
            uniform = Slice(params, *c.params) if c.params else None
            storage = tuple(place(r) for r in c.regions)
            commands.append(Bound(plan.shaders[c.shader], storage, uniform, c.grid, c.kernel, c.scaled, int(c.flops)))
        made.append({t.name: tensors[t.region.index] for t in plan.external})
    return made, commands

"""A plan's memory on a device: activations, parameters, constants, and tensors that stay between stages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from pyruntime.compiler.plan import Command, Plan, Region, Space
from pyruntime.device.base import Bound, Device, Slice, Slot
from pyruntime.device.execution.arenas import Arenas
from pyruntime.device.execution.concurrency import all_of
from pyruntime.device.execution.weights import Weights
from pyruntime.errors import OutOfMemory

__all__ = ["Compute", "PlanMemory", "region_slice"]

Compute: TypeAlias = Callable[[], Awaitable[Mapping[str, int]]]
"""Coroutine function that computes tensors on the GPU; returns their buffers by name."""


class PlanMemory:
    """Maps the regions of a plan to buffers.

    Attributes:
        resident: buffers of the tensors that stay on the GPU between stages, by value name.
        bound: names of the external tensors whose buffers each run brings.
    """

    def __init__(
        self,
        plan: Plan,
        device: Device,
        weights: Weights,
        resident: Mapping[str, int],
        bound: Iterable[str],
        arenas: Arenas,
    ) -> None:
        self.resident, self.bound, self.arenas = dict(resident), frozenset(bound), arenas
        self._plan, self._device, self._weights = plan, device, weights
        self._params: list[int] = []
        self._own: list[int] = []
        self._loaded = False

    def check(self) -> None:
        """Raise OutOfMemory if an arena is larger than the device's largest buffer."""
        limit = self._device.target.limits.buffer_bytes
        largest = max(self._plan.arenas, default=0)
        if largest > limit:
            raise OutOfMemory(
                f"the plan needs one buffer of {largest:,} bytes and the device allows {limit:,}; "
                "use smaller inputs or the CPU provider"
            )

    async def allocate(self, moved: Callable[[], None]) -> None:
        """Allocate memory for activations and parameters, and upload the parameters.

        Args:
            moved: called when the arenas move to other buffers, which makes recordings invalid.
        """
        await all_of(self.arenas.join(id(self), self._plan.arenas, moved), self._allocate_params())

    async def _allocate_params(self) -> None:
        if self._plan.params:
            self._params = await self._device.allocate([len(self._plan.params)], "params")
            self._device.write(self.params, self._plan.params)

    async def load(self) -> None:
        """Upload the plan's constants, or use those that are on the device."""
        await self._weights.load(self._plan.constants)
        self._loaded = True

    async def compute(self, compute: Compute | None) -> None:
        """Add the resident tensors that `compute` makes."""
        if compute is not None:
            self.resident.update(await compute())

    async def allocate_resident(self) -> None:
        """Allocate buffers for the external tensors that are neither bound by runs nor left by earlier stages."""
        fresh = [t for t in self._plan.external if t.name not in self.resident and t.name not in self.bound]
        made = await self._device.allocate([t.region.nbytes for t in fresh], "resident")
        self._own += made
        self.resident.update(zip((t.name for t in fresh), made, strict=True))

    @property
    def params(self) -> Slice:
        """The buffer with the plan's parameters."""
        return Slice(self._params[0], 0, len(self._plan.params))

    def external(self, bound: Mapping[str, int]) -> list[int]:
        """Return the buffers of the plan's external tensors by index; 0 for runs' tensors missing in `bound`."""
        external = [0] * (1 + max((t.region.index for t in self._plan.external), default=-1))
        for t in self._plan.external:
            external[t.region.index] = bound.get(t.name, 0) if t.name in self.bound else self.resident[t.name]
        return external

    def slice(self, region: Region, external: Sequence[int], nbytes: int | None = None) -> Slice:
        """Return the first `nbytes` bytes of a region (default: all of it) as a slice of a buffer."""
        nbytes = region.nbytes if nbytes is None else nbytes
        if region.space is Space.EXTERNAL:
            # A run's buffer may be smaller than the region, which has the largest size of the plan.
            buffer = external[region.index]
            left = self._device.ledger.live.get(buffer, region.offset + nbytes) - region.offset
            return Slice(buffer, region.offset, min(nbytes, left))
        return region_slice(region, nbytes, self._plan, self._weights, self.arenas.buffers)

    def bind(self, command: Command, external: Sequence[int]) -> Bound:
        """Bind a command to its memory, with slots for the buffers of runs that are not known yet."""
        uniform = Slice(self._params[0], *command.params) if command.params else None
        storage = tuple(
            Slot(r.index, r.offset, r.nbytes)
            if r.space is Space.EXTERNAL and not external[r.index]
            else self.slice(r, external)
            for r in command.regions
        )
        source = self._plan.shaders[command.shader]
        return Bound(source, storage, uniform, command.grid, command.kernel, command.scaled, int(command.flops))

    def keep_resident(self) -> dict[str, int]:
        """Return the buffers of the resident tensors, which the caller now owns."""
        self._own = []
        return dict(self.resident)

    def release(self) -> None:
        """Free the memory, and release the constants."""
        self.arenas.leave(id(self))
        self._device.free([*self._params, *self._own])
        if self._loaded:
            self._weights.drop({c.key for c in self._plan.constants})
            self._loaded = False
        self._params, self._own = [], []


def region_slice(region: Region, nbytes: int, plan: Plan, weights: Weights, arenas: Sequence[int]) -> Slice:
    """Return the first `nbytes` bytes of a region of constants or activations as a slice of a buffer."""
    if region.space is Space.WEIGHTS:
        place = weights.slice(plan.constants[region.index])
        return Slice(place.buffer, place.offset + region.offset, nbytes)
    return Slice(arenas[region.index], region.offset, nbytes)

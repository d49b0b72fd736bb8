"""The memory of a plan on a device: activations, parameters, constants, and tensors that stay between stages."""

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
"""Makes tensors on the GPU: their buffers by name."""


class PlanMemory:
    """Where a plan's regions are.

    Attributes:
        resident: buffers of tensors that stay on the GPU between stages, by value name.
        bound: names of external tensors that each run brings, in buffers of its own.
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
        """Raises OutOfMemory: the device has no buffers as large as an arena."""
        limit = self._device.target.limits.buffer_bytes
        largest = max(self._plan.arenas, default=0)
        if largest > limit:
            raise OutOfMemory(
                f"the plan needs one buffer of {largest:,} bytes and the device allows {limit:,}; "
                "use smaller inputs or the CPU provider"
            )

    async def allocate(self, moved: Callable[[], None]) -> None:
        """Have memory for activations and parameters.

        Args:
            moved: called when arenas are in other buffers: what was recorded is void.
        """
        await all_of(self.arenas.join(id(self), self._plan.arenas, moved), self._allocate_params())

    async def _allocate_params(self) -> None:
        if self._plan.params:
            self._params = await self._device.allocate([len(self._plan.params)], "params")
            self._device.write(self.params, self._plan.params)

    async def load(self) -> None:
        """Upload the constants."""
        await self._weights.load(self._plan.constants)
        self._loaded = True

    async def compute(self, compute: Compute | None) -> None:
        """Have further resident tensors made."""
        if compute is not None:
            self.resident.update(await compute())

    async def allocate_resident(self) -> None:
        """Have buffers for the external tensors that neither runs bring nor stages have left."""
        fresh = [t for t in self._plan.external if t.name not in self.resident and t.name not in self.bound]
        made = await self._device.allocate([t.region.nbytes for t in fresh], "resident")
        self._own += made
        self.resident.update(zip((t.name for t in fresh), made, strict=True))

    @property
    def params(self) -> Slice:
        """Where the parameters are."""
        return Slice(self._params[0], 0, len(self._plan.params))

    def external(self, bound: Mapping[str, int]) -> list[int]:
        """Return the buffers of the plan's external tensors; 0 for those that runs bring and that are not `bound`."""
        external = [0] * (1 + max((t.region.index for t in self._plan.external), default=-1))
        for t in self._plan.external:
            external[t.region.index] = bound.get(t.name, 0) if t.name in self.bound else self.resident[t.name]
        return external

    def slice(self, region: Region, external: Sequence[int], nbytes: int | None = None) -> Slice:
        """Return where the first bytes of a region are."""
        nbytes = region.nbytes if nbytes is None else nbytes
        if region.space is Space.EXTERNAL:
            # What a run brings may be smaller than the largest the plan is for.
            buffer = external[region.index]
            left = self._device.ledger.live.get(buffer, region.offset + nbytes) - region.offset
            return Slice(buffer, region.offset, min(nbytes, left))
        return region_slice(region, nbytes, self._plan, self._weights, self.arenas.buffers)

    def bind(self, command: Command, external: Sequence[int]) -> Bound:
        """Bind a command to its memory, with slots for buffers that runs bring and are not known."""
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
        """Hand over the resident tensors, whose buffers become the caller's."""
        self._own = []
        return dict(self.resident)

    def release(self) -> None:
        """Free what was allocated; constants that no other plan of the session uses go too."""
        self.arenas.leave(id(self))
        self._device.free([*self._params, *self._own])
        if self._loaded:
            self._weights.drop({c.key for c in self._plan.constants})
            self._loaded = False
        self._params, self._own = [], []


def region_slice(region: Region, nbytes: int, plan: Plan, weights: Weights, arenas: Sequence[int]) -> Slice:
    """Return where the first bytes of a region of constants or activations are."""
    if region.space is Space.WEIGHTS:
        place = weights.slice(plan.constants[region.index])
        return Slice(place.buffer, place.offset + region.offset, nbytes)
    return Slice(arenas[region.index], region.offset, nbytes)

"""How long dispatches take on a device, in a row as plans have them: by the clock of the host around many of them.

Timestamps would count a pass for each dispatch, and browsers round them to 100 microseconds.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from pyruntime.compiler.memory import round_up
from pyruntime.device.base import Bound, Device, Read, Slice
from pyruntime.kernels import Dispatch, Role
from pyruntime.kernels.ir.fallback import without_fallback

__all__ = ["ROUNDS", "Lap"]

_LEAST = 4e-3
"""Seconds that a measurement takes at least: much longer than the host's clock and the queue are uncertain by."""

_LONG = 0.02
"""Seconds of which the way to the GPU and back is no part that matters."""

_PLAUSIBLE = 0.25
"""Part of the longer row by which it is longer, at least: the way to the GPU and back takes less than `_LEAST`."""

_SLIGHT = 0.1
"""Part by which a difference may be off what it can be."""

ROUNDS = 5
_MOST = 1024
"""Times a row of dispatches is repeated at most."""


class Lap:
    """Dispatches with separate operands on a device, to be run again and again.

    Use as `async with Lap(device, dispatches) as lap: await lap.seconds()`. Operands hold zeros.

    Args:
        constants: inputs after the first are bound as constants are, which they are in most models.

    Raises:
        OutOfMemory, EngineError: of the device.
    """

    def __init__(self, device: Device, dispatches: Sequence[Dispatch], constants: bool = False) -> None:
        self.device = device
        self.dispatches = dispatches
        self._constants = constants
        self._buffers: list[int] = []
        self._bound: list[Bound] = []
        self._recordings: dict[int, int] = {}

    async def __aenter__(self) -> Lap:
        sizes: dict[tuple[Role, int], int] = {}
        for dispatch in self.dispatches:
            for o in dispatch.operands:
                key = o.role, o.index
                sizes[key] = max(sizes.get(key, 16), round_up(o.type.nbytes))
        params = [d.params + bytes(-len(d.params) % 16) for d in self.dispatches]
        sources = [self._wgsl(d) for d in self.dispatches]
        await self.device.compile(sources)
        self._buffers = await self.device.allocate([*sizes.values(), *(round_up(len(p)) for p in params)], "measuring")
        tensors = dict(zip(sizes, self._buffers, strict=False))
        for dispatch, source, bytes_, uniform in zip(
            self.dispatches, sources, params, self._buffers[len(sizes) :], strict=True
        ):
            place = Slice(uniform, 0, len(bytes_))
            self.device.write(place, bytes_)
            storage = tuple(
                Slice(tensors[o.role, o.index], first, nbytes)
                for o, b in zip(dispatch.operands, dispatch.kernel.bindings, strict=True)
                for first, nbytes in b.split(sizes[o.role, o.index])
            )
            self._bound.append(Bound(source, storage, place, dispatch.grid, "measuring"))
        return self

    def _wgsl(self, dispatch: Dispatch) -> str:
        operands = enumerate(dispatch.operands) if self._constants else ()
        constants = (i for i, o in operands if o.role is Role.CONSTANT or (o.role is Role.INPUT and o.index > 0))
        return without_fallback(dispatch.kernel.wgsl(None, frozenset(constants)))

    async def __aexit__(self, *_: object) -> None:
        for recording in self._recordings.values():
            self.device.drop(recording)
        self.device.free(self._buffers)

    async def seconds(self, least: float = _LEAST, rounds: int = ROUNDS) -> float:
        """Measure all the dispatches, one after another, in seconds: how much longer twice as many take.

        Noise only adds (a clock that is still low, a host that looks late), so the least of each of `rounds` counts.
        Where rows are shorter than they seemed, or the difference is none that they can have, longer ones are measured.
        """
        await self._took([1])
        taken = min(await self._took([1, 1]))
        if taken > _LONG:  # or late twice
            taken = min(taken, *await self._took([1, 1]))
        if taken > _LONG:
            return taken
        times = 1
        while taken < least and times < _MOST:
            times = min(_MOST, max(2 * times, int(1.2 * times * least / max(taken, 1e-5))))
            (taken,) = await self._took([times])
        while True:
            pairs = [await self._took([times, 2 * times]) for _ in range(rounds)]
            once, twice = min(once for once, _ in pairs), min(twice for _, twice in pairs)
            longer = min(max(twice - once, _PLAUSIBLE * twice), twice / 2)
            believable = once >= least / 2 and abs(longer - (twice - once)) < _SLIGHT * longer
            if believable or times >= _MOST or twice > _LONG:
                return longer / times
            times *= 2

    async def _took(self, rows: Sequence[int]) -> list[float]:
        """Seconds of runs of all dispatches, so many times in a row each."""
        end = [Read(replace(self._bound[-1].storage[-1], nbytes=16))]
        taken = []
        for times in rows:
            if times not in self._recordings:
                self._recordings[times] = self.device.record(self._bound * times)
            began = time.perf_counter()
            await self.device.submit(self._recordings[times], [], end)
            taken.append(time.perf_counter() - began)
        return taken

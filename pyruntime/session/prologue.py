"""Constants that the GPU computes before a stage runs, such as weights that are merged: a few at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from pyruntime.device.base import Device
from pyruntime.device.executable import Executable
from pyruntime.device.weights import Weights
from pyruntime.plan.plan import Plan
from pyruntime.session.compiler import Computed
from pyruntime.session.limits import ResourceLimits
from pyruntime.session.stages import planned_bytes

__all__ = ["Prologue"]

TOGETHER = 128 << 20
"""Bytes that constants which are computed at a time may take: each waits for the device several times."""

Make = Callable[[Plan, Plan | None, Weights, Mapping[str, int], Iterable[str]], Executable]


class Prologue:
    """Computes constants into the session's weights.

    Args:
        make: the executable of a plan.
        held: bytes that the session has on the device.
    """

    def __init__(
        self, device: Device, weights: Weights, limits: ResourceLimits, make: Make, held: Callable[[], int]
    ) -> None:
        self._device, self._weights, self._limits = device, weights, limits
        self._make, self._held = make, held

    async def run(self, constants: Sequence[Computed]) -> dict[str, int]:
        """The buffers of these constants by name, used from now on: `Weights.drop` each key once.

        Raises:
            OutOfMemory, EngineError: none of them is used then.
        """
        made: dict[str, int] = {}
        used: list[Computed] = []
        try:
            for some in self._groups(constants):
                self._limits.check_gpu(sum(nbytes for _, nbytes in some), self._held())
                work = (self._weights.compute(c.key, c.nbytes, partial(self._compute, c)) for c, _ in some)
                # All are waited for also when one fails: what the others allocate meanwhile has to be freed.
                outcomes = await asyncio.gather(*work, return_exceptions=True)
                pairs = list(zip(some, outcomes, strict=True))
                used += [c for (c, _), buffer in pairs if not isinstance(buffer, BaseException)]
                for (constant, _), buffer in pairs:
                    if isinstance(buffer, BaseException):
                        raise buffer
                    made[constant.name] = buffer
        except BaseException:
            self._weights.drop([c.key for c in used])
            raise
        return made

    def most(self, constants: Sequence[Computed]) -> int:
        """Bytes that computing them takes at most at a time."""
        return max((sum(nbytes for _, nbytes in some) for some in self._groups(constants)), default=0)

    def _groups(self, constants: Sequence[Computed]) -> Iterator[list[tuple[Computed, int]]]:
        """Constants that are computed at a time, none of them twice, each with the bytes it takes meanwhile."""
        some: list[tuple[Computed, int]] = []
        for constant in constants:
            nbytes = planned_bytes(constant.plan, ()) + sum(c.nbytes for c in constant.plan.constants)
            full = sum(other for _, other in some) + nbytes > TOGETHER
            if some and (full or any(constant.key == c.key for c, _ in some)):
                yield some
                some = []
            some.append((constant, nbytes))
        if some:
            yield some

    async def _compute(self, constant: Computed) -> int:
        """Make a constant; what it is made from leaves the GPU again. Returns its buffer."""
        weights = Weights(self._device)
        executable = self._make(constant.plan, constant.alone, weights, {}, ())
        try:
            await executable.prepare()
            await executable.run({})
            return executable.keep_resident()[constant.name]
        finally:
            executable.release()
            weights.release()

"""Constants that the GPU computes before a stage runs, such as weights that are merged: a few at a time."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from pyruntime.compiler.compile import Computed
from pyruntime.compiler.plan import Plan, Space
from pyruntime.device.base import Device
from pyruntime.device.execution.constant_plans import is_constant_plan, run_constant_plans
from pyruntime.device.execution.executable import Executable
from pyruntime.device.execution.weights import Weights
from pyruntime.session.limits import ResourceLimits

__all__ = ["Prologue"]

LEAST_TOGETHER, MOST_TOGETHER, SHARE = 4 << 20, 128 << 20, 16
"""Bytes that constants which are computed at a time may take: a sixteenth of what is allocated then, within bounds.
Each time waits for the device, and what they are computed from is there in addition to what stays."""

Make = Callable[[Plan, Plan | None, Weights, Mapping[str, int], Iterable[str]], Executable]


class Prologue:
    """Computes constants into the session's weights.

    Args:
        make: the executable of a plan.
    """

    def __init__(self, device: Device, weights: Weights, limits: ResourceLimits, make: Make) -> None:
        self._device, self._weights, self._limits, self._make = device, weights, limits, make

    async def run(self, constants: Sequence[Computed], held: Callable[[], int], total: int) -> dict[str, int]:
        """Compute constants; returns their buffers by name, in use until `Weights.drop` was called for each key.

        Args:
            held: bytes that the session has on the device. total: those that it has in the end.

        Raises:
            OutOfMemory, EngineError: none of them is used then.
        """
        made: dict[str, int] = {}
        used: list[Computed] = []
        try:
            # Those that are computed from what the session uploads wait for it.
            first = sorted(constants, key=lambda c: self._weights.is_coming(c.plan.constants))
            for some in self._groups(first, total):
                self._limits.check_gpu(sum(nbytes for _, nbytes in some), held())
                ready = await self._together([c for c, _ in some], _most(total))
                try:
                    for constant, _ in some:
                        make = partial(self._made, constant, ready)
                        made[constant.name] = await self._weights.compute(constant.key, constant.nbytes, make)
                        used.append(constant)
                finally:  # others may have made the same meanwhile
                    self._device.free(list(ready.values()))
        except BaseException:
            self._weights.drop([c.key for c in used])
            raise
        return made

    def most(self, constants: Sequence[Computed], total: int) -> int:
        """Return the most bytes that computing them takes at a time."""
        return max((sum(nbytes for _, nbytes in some) for some in self._groups(constants, total)), default=0)

    def _groups(self, constants: Sequence[Computed], total: int) -> Iterator[list[tuple[Computed, int]]]:
        """Constants that are computed at a time, none of them twice, each with the bytes it takes meanwhile."""
        most = _most(total)
        some: list[tuple[Computed, int]] = []
        for constant in constants:
            nbytes = constant.plan.allocated(()) + _read(constant.plan, most)
            full = sum(other for _, other in some) + nbytes > most
            if some and (full or any(constant.key == c.key for c, _ in some)):
                yield some
                some = []
            some.append((constant, nbytes))
        if some:
            yield some

    async def _together(self, constants: Sequence[Computed], most: int) -> dict[Hashable, int]:
        """The buffers of those that are not there yet and can be made in one go, by key."""
        some = [c for c in constants if c.key not in self._weights and c.alone is None]
        some = [c for c in some if is_constant_plan(c.plan, self._device)]
        made = await run_constant_plans([c.plan for c in some], self._device, self._weights, most) if some else []
        return {c.key: buffers[c.name] for c, buffers in zip(some, made, strict=True)}

    async def _made(self, constant: Computed, ready: dict[Hashable, int]) -> int:
        return ready.pop(constant.key) if constant.key in ready else await self._compute(constant)

    async def _compute(self, constant: Computed) -> int:
        """Make a constant; what it is made from leaves the GPU again. Returns its buffer."""
        weights = Weights(self._device)
        executable = self._make(constant.plan, constant.alone, weights, {}, ())
        try:
            await executable.prepare()
            await executable.runs.run({}, {})
            return executable.keep_resident()[constant.name]
        finally:
            executable.release()
            weights.release()


def _most(total: int) -> int:
    """Return the bytes that constants which are computed at a time may take in a session of `total` bytes."""
    return min(max(LEAST_TOGETHER, total // SHARE), MOST_TOGETHER)


def _read(plan: Plan, most: int) -> int:
    """Return the bytes that a plan reads at a time: up to `most`, or what one command reads."""
    sizes = [c.nbytes for c in plan.constants]
    one = max((sum(sizes[r.index] for r in c.regions if r.space is Space.WEIGHTS) for c in plan.commands), default=0)
    return min(sum(sizes), max(most, one))

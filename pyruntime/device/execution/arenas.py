"""Memory for activations, which the plans of a session share: as much as the largest takes, not their sum.

Runs that are queued in one go (uploads, dispatches, copies to staging buffers) may share it also while they overlap:
the queue keeps their order. What is queued piece by piece has memory of its own, or it to itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from pyruntime.device.base import Device

__all__ = ["Arenas"]


class Arenas:
    """Buffers that the plans in them use in turn.

    Attributes:
        buffers: arena i of every plan is the first bytes of buffer i.
    """

    def __init__(self, device: Device) -> None:
        self.buffers: list[int] = []
        self._device = device
        self._sizes: list[int] = []
        self._users: dict[int, Callable[[], None]] = {}
        self._lock = asyncio.Lock()
        self._overlapping = 0
        self._last_of_them = asyncio.Event()

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        return sum(self._sizes)

    def missing(self, sizes: Sequence[int]) -> int:
        """Return the bytes that a plan with arenas of these sizes allocates, before it frees those they replace."""
        return sum(sizes[i] for i in self._larger(sizes))

    def _larger(self, sizes: Sequence[int]) -> list[int]:
        """Arenas that there are not, or not of this size."""
        return [i for i, size in enumerate(sizes) if i >= len(self._sizes) or size > self._sizes[i]]

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Use the memory exclusively: waits for all runs, and lets none begin."""
        async with self._lock:
            while self._overlapping:
                self._last_of_them.clear()
                await self._last_of_them.wait()
            yield

    @asynccontextmanager
    async def overlapping(self) -> AsyncIterator[None]:
        """Use the memory for a run that is queued in one go."""
        while self._lock.locked():
            async with self._lock:
                pass
        self._overlapping += 1
        try:
            yield
        finally:
            self._overlapping -= 1
            if not self._overlapping:
                self._last_of_them.set()

    async def join(self, user: int, sizes: Sequence[int], moved: Callable[[], None]) -> None:
        """Have arenas of these sizes. Where memory has to grow, what is recorded over it is void, and its buffers go.

        Args:
            user: leaves by this number. moved: called when the memory is another one.

        Raises:
            OutOfMemory: nothing has changed then.
        """
        self._users[user] = moved  # from now on others do not free the memory as the last
        try:
            if self._larger(sizes):
                async with self.alone():
                    await self._grow(sizes)
        except BaseException:
            self.leave(user)
            raise

    async def _grow(self, sizes: Sequence[int]) -> None:
        had, larger = len(self._sizes), self._larger(sizes)
        made = dict(zip(larger, await self._device.allocate([sizes[i] for i in larger], "arena"), strict=True))
        old = [self.buffers[i] for i in larger if i < had]
        count = max(had, len(sizes))
        self.buffers = [made[i] if i in made else self.buffers[i] for i in range(count)]
        self._sizes = [sizes[i] if i in made else self._sizes[i] for i in range(count)]
        if old:
            for moved in self._users.values():
                moved()
            self._device.free(old)

    def leave(self, user: int) -> None:
        """Use it no longer; with the last user the memory goes."""
        if self._users.pop(user, None) is not None and not self._users:
            self._device.free(self.buffers)
            self.buffers, self._sizes = [], []

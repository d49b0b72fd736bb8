"""Memory for activations, shared by the plans of a session: as large as the largest plan needs, not their sum.

Runs that are queued in one piece (uploads, dispatches, copies to staging buffers) may share the memory even while they
overlap, since the queue executes them in order. Runs of several pieces use it exclusively, or have separate memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from pyruntime.device.base import Device

__all__ = ["Arenas"]


class Arenas:
    """The buffers of a session's arenas.

    Attributes:
        buffers: arena i of every plan lies at the start of buffer i.
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
        """Return the bytes to allocate for a plan with arenas of these sizes, before the buffers they replace are
        freed.
        """
        return sum(sizes[i] for i in self._larger(sizes))

    def _larger(self, sizes: Sequence[int]) -> list[int]:
        """Return the indices of arenas that have no buffer, or a smaller one."""
        return [i for i, size in enumerate(sizes) if i >= len(self._sizes) or size > self._sizes[i]]

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Use the memory exclusively: wait for all runs, and let no other begin."""
        async with self._lock:
            while self._overlapping:
                self._last_of_them.clear()
                await self._last_of_them.wait()
            yield

    @asynccontextmanager
    async def overlapping(self) -> AsyncIterator[None]:
        """Use the memory for a run that is queued in one piece."""
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
        """Provide buffers for a plan's arenas. Larger buffers replace old ones, whose recordings become invalid.

        Args:
            user: identifies the plan for `leave`. moved: called when buffers were replaced.

        Raises:
            OutOfMemory: the device refused; the buffers are unchanged.
        """
        self._users[user] = moved  # so that no other user's `leave` frees the memory
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
        """Stop using the memory; the last user's call frees it."""
        if self._users.pop(user, None) is not None and not self._users:
            self._device.free(self.buffers)
            self.buffers, self._sizes = [], []

"""Uploads to the GPU and readbacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyruntime.device.base import Raw, Read, Slice
from pyruntime.device.desktop.implementations import Commands, GpuObject, Implementation

__all__ = ["Arrived", "Readback", "Staging", "pieces"]

PIECE = 32 << 20
"""Bytes of an upload that are queued at a time: the implementation copies queued bytes to memory that the GPU reads."""

MOST_TOGETHER = 64 << 20
"""Bytes that are read back through one staging buffer; a larger slice has a separate one."""

MOST_STAGING = 256 << 20
"""Limit of the bytes of unused staging buffers."""


def pieces(target: Slice, data: Raw, offset: int) -> list[tuple[int, bytes | memoryview]]:
    """Split a write into (offset in the target's buffer, bytes) pairs, with lengths that are multiples of four bytes.

    Only a last partial word is copied and padded; other parts are views, of a file's memory map for instance.
    """
    end = target.nbytes
    whole = end & ~3
    made: list[tuple[int, bytes | memoryview]] = []
    for first in range(0, whole, PIECE):
        made.append((target.offset + first, _part(data, offset + first, min(PIECE, whole - first))))
    if end > whole:
        made.append((target.offset + whole, bytes(_part(data, offset + whole, end - whole)).ljust(4, b"\0")))
    return made


def _part(data: Raw, offset: int, nbytes: int) -> memoryview:
    if isinstance(data, bytes | memoryview):
        return memoryview(data).cast("B")[offset : offset + nbytes]
    return memoryview(data.read(offset, nbytes))


class Arrived:
    """Bytes that were read back, in separate memory on the host."""

    def __init__(self, data: memoryview) -> None:
        self._data = data

    def read(self, offset: int, length: int) -> memoryview:
        """See `RawSource.read`."""
        return self._data[offset : offset + length]


class Staging:
    """Pool of buffers for readbacks. Sizes are powers of two; above `MOST_TOGETHER`, multiples of 1 MiB.

    Attributes:
        nbytes: bytes of all buffers, in use and unused.
    """

    def __init__(self, implementation: Implementation, device: GpuObject) -> None:
        self._implementation, self._device = implementation, device
        self._free: dict[int, list[GpuObject]] = {}
        self.nbytes = 0

    def take(self, nbytes: int) -> GpuObject:
        """Return an unmapped buffer of at least `nbytes`."""
        size = max(4096, 1 << (nbytes - 1).bit_length())
        if size > MOST_TOGETHER:
            size = -(-nbytes // (1 << 20)) << 20
        found = self._free.get(size)
        if found:
            return found.pop()
        usage = self._implementation.api.BufferUsage
        made = self._device.create_buffer(label="staging", size=size, usage=usage.MAP_READ | usage.COPY_DST)
        self.nbytes += size
        return made

    def give(self, buffer: GpuObject) -> None:
        """Return an unmapped buffer to the pool; it is destroyed where the pool would exceed `MOST_STAGING`."""
        if buffer.size + sum(size * len(some) for size, some in self._free.items()) > MOST_STAGING:
            self.discard(buffer)
        else:
            self._free.setdefault(buffer.size, []).append(buffer)

    def discard(self, buffer: GpuObject) -> None:
        """Destroy a buffer."""
        self.nbytes -= buffer.size
        buffer.destroy()

    def clear(self) -> None:
        """Destroy the unused buffers."""
        for some in self._free.values():
            for buffer in some:
                self.discard(buffer)
        self._free.clear()


class Readback:
    """The readback of one run: slices packed into staging buffers, each of which is mapped once."""

    def __init__(self, staging: Staging, reads: Sequence[Read]) -> None:
        self._staging, self._reads = staging, reads
        self._groups = _groups([read.source.nbytes for read in reads])
        self._buffers: list[GpuObject] = []
        try:
            for group in self._groups:
                self._buffers.append(staging.take(sum(group[-1])))
        except BaseException:
            self.abandon()
            raise

    def encode(self, encoder: Commands, buffers: dict[int, GpuObject]) -> None:
        """Encode the copies into the staging buffers."""
        reads = iter(self._reads)
        for buffer, group in zip(self._buffers, self._groups, strict=True):
            for offset, nbytes in group:
                source = next(reads).source
                words = (nbytes + 3) & ~3
                encoder.copy_buffer_to_buffer(buffers[source.buffer], source.offset, buffer, offset, words)

    def collect(self, implementation: Implementation, check: Callable[[], None]) -> list[Raw]:
        """Wait for the copies; return the bytes of each slice, in the order of the reads."""
        made: list[Raw] = []
        for group in self._groups:
            made += [Arrived(data) for data in implementation.read(self._buffers[0], group, check)]
            self._staging.give(self._buffers.pop(0))
        return made

    def abandon(self) -> None:
        """Destroy the staging buffers that `collect` did not read."""
        for buffer in self._buffers:
            self._staging.discard(buffer)
        self._buffers.clear()


def _groups(sizes: Sequence[int]) -> list[list[tuple[int, int]]]:
    """Pack slices into staging buffers; return (offset, bytes) of each slice, by buffer. Offsets are multiples of
    eight.
    """
    groups: list[list[tuple[int, int]]] = []
    end = MOST_TOGETHER
    for nbytes in sizes:
        if end + nbytes > MOST_TOGETHER:
            groups.append([])
            end = 0
        groups[-1].append((end, nbytes))
        end += -(-nbytes // 8) * 8
    return groups

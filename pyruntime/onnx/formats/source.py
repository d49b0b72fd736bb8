"""Random access to the bytes of a model, in memory, in files or still loading.

A reader requests windows, a consumer of weights requests ranges; no consumer needs the whole file. A source outside of
this process's memory (a JavaScript ArrayBuffer, a file) implements only `fetch` and inherits a cache of one window,
which grows while reading moves forward in small steps and shrinks after a jump. So reading the graph of a model with
weights in raw_data takes a fraction of a percent of its bytes, in few fetches where the skipped parts are small.
"""

from __future__ import annotations

import os
import stat
import sys
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from pyruntime.errors import Fail, InvalidArgument, InvalidProtobuf, NoSuchFile

__all__ = [
    "HEADER",
    "ArrivingSource",
    "Awaited",
    "Buffer",
    "ByteSource",
    "FileSource",
    "MappedSource",
    "MemorySource",
    "Span",
    "open_file",
]

Buffer: TypeAlias = bytes | memoryview

HEADER = 16
"""Bytes that a reader requests to see a field's tag and length, or tag and scalar: at most 5 + 10 are used."""

_LARGEST_WINDOW = 1 << 16


class ByteSource(ABC):
    """`size` bytes, readable in any order.

    A subclass implements `fetch` and calls `super().__init__(size)`. `smallest_window` is the fewest bytes that a fetch
    after a jump reads: as many as take no longer than the call itself.
    """

    smallest_window = 512

    def __init__(self, size: int) -> None:
        self.size = size
        self._window = b""
        self._base = 0
        self._ahead = self.smallest_window

    @abstractmethod
    def fetch(self, offset: int, length: int) -> Buffer:
        """Return bytes [offset, offset + length), a range within the source."""

    def read(self, offset: int, length: int) -> Buffer:
        """Return bytes [offset, offset + length), without use of the window.

        Raises:
            InvalidArgument: the range is not within the source.
            Fail: the source no longer has these bytes.
        """
        if offset < 0 or length < 0 or length > self.size - offset:
            raise InvalidArgument(f"cannot read {length} bytes at offset {offset} of a source of {self.size} bytes")
        if not length:
            return b""
        data = self.fetch(offset, length)
        if len(data) != length:
            raise Fail(
                f"asked for {length} bytes at offset {offset}, got {len(data)}: the model changed while it was read; "
                "load it again"
            )
        return data

    def there_now(self, end: int) -> int:
        """Return the number of leading bytes that can be read now; the result is exact only if it is below `end`."""
        return self.size

    def window(self, offset: int, minimum: int = 1) -> tuple[Buffer, int]:
        """Return a buffer and the offset of its first byte: `buffer[offset - base]` is the byte at `offset`.

        The buffer reaches at least `minimum` bytes beyond `offset`, or to the end of the source. It is valid until the
        next call. Raises as `read` does.
        """
        minimum = min(minimum, self.size - offset)
        end = self._base + len(self._window)
        if not (self._base <= offset and offset + minimum <= end):
            near = self._base <= offset <= end + self._ahead
            self._ahead = min(2 * self._ahead, _LARGEST_WINDOW) if near else self.smallest_window
            there = max(self.there_now(offset + minimum) - offset, minimum)
            self._window = bytes(self.read(offset, min(max(minimum, self._ahead), there)))
            self._base = offset
        return self._window, self._base


class ArrivingSource(ByteSource):
    """A source that is still loading. `size` is the expected size, final after `complete`.

    Attributes:
        in_order: bytes arrive in memory in order, as far as `there_now` says, and nothing is prefetched.
        looked_at: ranges (begin, end), ascending and disjoint, that planning may read; empty where unknown, and after
            they were requested.
    """

    in_order = False
    looked_at: Sequence[tuple[int, int]] = ()

    @abstractmethod
    async def there(self, end: int) -> None:
        """Wait for the bytes before `end`, or for the end of the source. Raises Fail if loading fails."""

    @abstractmethod
    async def complete(self) -> None:
        """Wait for all bytes. Raises Fail if loading fails."""

    async def ahead(self, ranges: Sequence[tuple[int, int]]) -> bool:
        """Wait for only these ranges. Returns False if they cannot be loaded earlier than in order.

        Raises Fail if loading fails.
        """
        return False


class Awaited(BaseException):
    """Raised where synchronous code reads bytes that have not arrived: wait for `end`, then repeat the work.

    Not an Exception, so that no handler on the way treats it as a failure.
    """

    def __init__(self, source: ArrivingSource, end: int) -> None:
        super().__init__(end)
        self.source, self.end = source, end

    async def over(self) -> None:
        """Wait for the bytes. Raises Fail if loading fails."""
        await self.source.there(self.end)

    async def ahead(self) -> bool:
        """Wait for these bytes and all others that planning may read; return whether they arrived.

        Each source is asked once. Raises Fail if loading fails.
        """
        ranges = self.source.looked_at
        after = bisect_left(ranges, self.end, key=lambda one: one[1])
        if after == len(ranges) or self.end <= ranges[after][0]:
            return False
        self.source.looked_at = ()
        return await self.source.ahead(ranges)


class MemorySource(ByteSource):
    """A source over a bytes-like object. Ranges are memoryviews of it.

    Raises:
        InvalidArgument: the object is not bytes-like, or not contiguous.
    """

    def __init__(self, data: Any) -> None:
        self._data: Buffer
        if isinstance(data, bytes):
            self._data = data
        else:
            try:
                view = memoryview(data)
                self._data = view.cast("B") if view.nbytes else b""
            except TypeError as error:
                raise InvalidArgument(
                    f"expected contiguous bytes, a bytearray, a memoryview or a buffer, got {type(data).__name__}"
                ) from error
        super().__init__(len(self._data))

    def fetch(self, offset: int, length: int) -> Buffer:
        return memoryview(self._data)[offset : offset + length]

    def window(self, offset: int, minimum: int = 1) -> tuple[Buffer, int]:
        return self._data, 0


class MappedSource(MemorySource):
    """A source over a memory-mapped file."""


class FileSource(ByteSource):
    """A source over an open file, read in windows. Owns the descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._file = os.fdopen(descriptor, "rb", buffering=0)
        super().__init__(os.fstat(descriptor).st_size)

    def fetch(self, offset: int, length: int) -> Buffer:
        self._file.seek(offset)
        parts = bytearray()
        while len(parts) < length and (part := self._file.read(length - len(parts))):
            parts += part
        return bytes(parts)


@dataclass(frozen=True, slots=True)
class Span:
    """`length` bytes at `offset` of a source."""

    source: ByteSource
    offset: int
    length: int

    def read(self) -> Buffer:
        """Return the bytes. Raises as `ByteSource.read` does."""
        return self.source.read(self.offset, self.length)


def open_descriptor(path: str, flags: int = 0) -> int:
    """Open a regular file and return its descriptor; never blocks on a pipe or device.

    Raises:
        NoSuchFile: there is no such file.
        InvalidProtobuf: the path is a directory or another kind of file without contents.
        Fail: the system refuses to open it.
    """
    flags |= os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError as error:
        raise NoSuchFile(f"there is no file {path!r}") from error
    except (OSError, ValueError) as error:
        raise Fail(f"cannot open {path!r}: {error}") from error
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        kind = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
        raise InvalidProtobuf(f"{path!r} is {kind}; name an .onnx file")
    return descriptor


def map_descriptor(descriptor: int) -> ByteSource:
    """Return a source over an open file, memory-mapped where the system supports it. Owns the descriptor."""
    if sys.platform == "emscripten":  # mmap there copies the whole file into the heap
        return FileSource(descriptor)
    import mmap

    try:
        if os.fstat(descriptor).st_size == 0:
            return MemorySource(b"")
        return MappedSource(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
    except OSError as error:
        raise Fail(f"cannot map the file: {error}") from error
    finally:
        os.close(descriptor)


def open_file(path: str | os.PathLike[str]) -> ByteSource:
    """Return a source over the file at `path`.

    Raises:
        NoSuchFile: there is no such file.
        InvalidProtobuf: the path is a directory or another kind of file without contents.
        Fail: the system refuses to open it.
    """
    return map_descriptor(open_descriptor(str(Path(path))))

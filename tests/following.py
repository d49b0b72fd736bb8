"""A file that comes step by step, in its order, as far as a reader waits for it."""

from __future__ import annotations

from pyruntime.onnx.formats.source import ArrivingSource

__all__ = ["Following"]


class Following(ArrivingSource):
    """Bytes that a reader follows: who reads what is not there has a mistake.

    Attributes:
        here: bytes that have come. fetched: bytes that were read, `fetched_at_the_end` of them when all were there.
        waits: how often a reader waited.
    """

    in_order = True

    def __init__(self, data: bytes, step: int) -> None:
        super().__init__(len(data))
        self.data, self.step = data, step
        self.here = self.waits = self.fetched = self.fetched_at_the_end = 0

    def there_now(self, end: int) -> int:
        return self.here

    def fetch(self, offset: int, length: int) -> bytes:
        assert offset + length <= self.here, f"[{offset}, {offset + length}) where {self.here} bytes have come"
        self.fetched += length
        self.fetched_at_the_end += length if self.here == self.size else 0
        return self.data[offset : offset + length]

    def come(self, end: int) -> None:
        """Let the bytes before `end` come."""
        assert 0 <= end <= self.size
        while self.here < end:
            self.here = min(self.here + self.step, self.size)

    async def there(self, end: int) -> None:
        self.waits += 1
        self.come(end)

    async def complete(self) -> None:
        await self.there(self.size)

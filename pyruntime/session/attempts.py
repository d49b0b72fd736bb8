"""An attempt that several callers wait for: they share its failure instead of repeating it one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pyruntime.errors import OrtError

__all__ = ["Attempts"]


class Attempts:
    """Attempts at one thing, one at a time."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._failures = 0
        self._error: tuple[type[OrtError], str] | None = None

    @asynccontextmanager
    async def attempt(self) -> AsyncIterator[None]:
        """Wait for the attempt under way, then make one: the body of the `with` statement.

        Raises:
            OrtError: what an attempt raised that was under way when this was called; the body does not run then.
        """
        before = self._failures
        async with self._lock:
            if self._failures != before and self._error is not None:
                kind, text = self._error
                raise kind(text)
            try:
                yield
            except OrtError as error:
                self._failures += 1
                self._error = type(error), str(error)
                raise

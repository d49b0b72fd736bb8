"""Batches for throughput: the next one is uploaded while the GPU computes the one before it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from pyruntime.session.environment import in_browser, wait_for

__all__ = ["Batches", "Mapped"]

Feeds = Mapping[str, Any]
Batches = Iterable[Feeds] | AsyncIterable[Feeds]

_RUNS = 2
"""Runs in progress: one is computed, the next one is uploaded."""


class Mapped:
    """The outputs of a session for each batch, in order, to be iterated once: `for`, or `async for`.

    In a browser two runs are in progress. Under CPython a run has the device to itself, and the next one begins after
    it.

    Args:
        run, run_async: give the outputs of a batch.
        progress: called with the number of batches that are done, and of all, None where that is not known.
    """

    def __init__(
        self,
        batches: Batches,
        run: Callable[[Feeds], list[Any]],
        run_async: Callable[[Feeds], Coroutine[Any, Any, list[Any]]],
        progress: Callable[[int, int | None], object] | None,
    ) -> None:
        self._batches, self._run, self._run_async = batches, run, run_async
        self._progress = progress or (lambda done, total: None)
        self._total = len(batches) if isinstance(batches, Sequence) else None
        self._done = 0

    def __iter__(self) -> Iterator[list[Any]]:
        if in_browser:
            yield from _waited(self.__aiter__())
            return
        if not isinstance(self._batches, Iterable):
            raise TypeError("expected an iterable of feeds; use `async for` for an async iterable")
        for feeds in self._batches:
            outputs = self._run(feeds)
            self._note()
            yield outputs

    async def __aiter__(self) -> AsyncGenerator[list[Any]]:
        running: deque[asyncio.Future[list[Any]]] = deque()
        try:
            async with aclosing(_each(self._batches)) as batches:
                async for feeds in batches:
                    running.append(asyncio.ensure_future(self._run_async(feeds)))
                    if len(running) == _RUNS:
                        yield await self._next(running)
            while running:
                yield await self._next(running)
        finally:
            for run in running:
                run.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _next(self, running: deque[asyncio.Future[list[Any]]]) -> list[Any]:
        outputs = await running[0]
        running.popleft()
        self._note()
        return outputs

    def _note(self) -> None:
        self._done += 1
        self._progress(self._done, self._total)


async def _each(batches: Batches) -> AsyncGenerator[Feeds]:
    if isinstance(batches, AsyncIterable):
        async for feeds in batches:
            yield feeds
    else:
        for feeds in batches:
            yield feeds


def _waited(results: AsyncGenerator[list[Any]]) -> Iterator[list[Any]]:
    """Iterate over the results, and await each."""
    how = "async for outputs in session.map(batches)"
    try:
        while True:
            try:
                outputs = wait_for(anext(results), how)
            except StopAsyncIteration:
                return
            yield outputs
    finally:
        wait_for(results.aclose(), how)

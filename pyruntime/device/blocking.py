"""Coroutines without an event loop, and locks between threads, for devices whose calls block.

Calls of a browser's device are awaited. Calls of a device with a `Device.turn` block, so coroutines that use it never
suspend: `run_blocking` drives them in the calling thread, even where an event loop is running.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import ContextVar
from types import coroutine
from typing import Any, TypeVar

__all__ = ["Turn", "is_blocking", "let_others", "run_blocking"]

T = TypeVar("T")

_blocking: ContextVar[bool] = ContextVar("pyruntime_blocking", default=False)


def is_blocking() -> bool:
    """Return whether `run_blocking` drives the calling code, which then must not await anything that needs an event
    loop.
    """
    return _blocking.get()


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in this thread.

    Raises:
        BlockingIOError: the coroutine awaits something that needs an event loop.
    """
    token = _blocking.set(True)
    try:
        while True:
            if work.send(None) is not None:
                work.close()
                raise BlockingIOError("the coroutine awaits an event loop")
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        _blocking.reset(token)


@coroutine
def let_others() -> Generator[None]:
    """Yield once to the other coroutines of `all_of`, or to the event loop, before a call that blocks."""
    yield


class Turn:
    """Reentrant lock of a device, with a queue of work to do when it is released."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._depth = 0
        self._later: deque[Callable[[], None]] = deque()

    def __enter__(self) -> None:
        self._lock.acquire()
        self._depth += 1

    def __exit__(self, *error: object) -> None:
        while self._depth == 1 and self._later:
            self._later.popleft()()
        self._depth -= 1
        self._lock.release()
        if self._later:
            self._work_off()

    def later(self, work: Callable[[], None]) -> None:
        """Call `work` now if the lock is free, else when it is released. For finalizers, which run in any thread at any
        time.
        """
        self._later.append(work)
        self._work_off()

    def _work_off(self) -> None:
        if self._lock.acquire(blocking=False):
            try:
                while not self._depth and self._later:
                    self._later.popleft()()
            finally:
                self._lock.release()

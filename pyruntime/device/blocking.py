"""Devices whose calls block: coroutines without an event loop, and threads that take turns.

A device in a browser is awaited. One whose calls block (`Device.turn`) is used by coroutines that end without having
been suspended: `run_blocking` drives them, in whatever thread, also where an event loop is running.
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
    """Return whether `run_blocking` drives this code, so that nothing may be awaited that takes time."""
    return _blocking.get()


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in this thread.

    Raises:
        BlockingIOError: it awaits what only an event loop can bring.
    """
    token = _blocking.set(True)
    try:
        while True:
            if work.send(None) is not None:
                work.close()
                raise BlockingIOError("it awaits an event loop")
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        _blocking.reset(token)


@coroutine
def let_others() -> Generator[None]:
    """Let the others of `all_of` go on, or the event loop, before a call that blocks."""
    yield


class Turn:
    """The right to use a device: one thread has it at a time, any number of times."""

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
        """Call `work` now, or when the thread that has the turn gives it up: finalizers run anywhere, at any time."""
        self._later.append(work)
        self._work_off()

    def _work_off(self) -> None:
        if self._lock.acquire(blocking=False):
            try:
                while not self._depth and self._later:
                    self._later.popleft()()
            finally:
                self._lock.release()

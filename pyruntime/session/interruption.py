"""Ending what a task waits for, from elsewhere: cancelled loads, terminated runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyruntime.errors import Fail, OrtError

__all__ = ["Switch", "run_terminated"]


class Switch:
    """Off at first; turning it on ends the tasks that are within its `ends`. May be turned from any thread."""

    def __init__(self) -> None:
        self._on = False
        self._inside: list[_Inside] = []

    @property
    def on(self) -> bool:
        """Whether it is on."""
        return self._on

    def turn(self, on: bool) -> None:
        """Turn it on or off."""
        self._on = on
        if on:
            for inside in tuple(self._inside):
                inside.tell()

    @contextmanager
    def ends(self, error: Callable[[], OrtError]) -> Iterator[None]:
        """Turned on before, this raises what `error` makes; turned on meanwhile, the await that the task is in does.

        A task that somebody else cancels too stays cancelled. Where there is no event loop nothing is awaited: then
        only what looks at `on` ends.
        """
        if self._on:
            raise error()
        task = _this_task()
        if task is None:
            yield
            return
        inside = _Inside(task)
        self._inside.append(inside)
        try:
            yield
        except asyncio.CancelledError:
            if inside.interrupted and task.cancelling() <= inside.before + 1:
                raise error() from None
            raise
        finally:
            self._inside.remove(inside)
            inside.leave()


class _Inside:
    """A task that a switch ends. It forgets the task when that has left: a cycle would keep its tensors alive."""

    def __init__(self, task: asyncio.Task[object]) -> None:
        self._task: asyncio.Task[object] | None = task
        self._loop = task.get_loop()
        self.before = task.cancelling()
        self.interrupted = False

    def tell(self) -> None:
        self._loop.call_soon_threadsafe(self._interrupt)

    def _interrupt(self) -> None:
        if self._task is not None and not self.interrupted:
            self.interrupted = True
            self._task.cancel()

    def leave(self) -> None:
        if self._task is not None and self.interrupted:
            self._task.uncancel()
        self._task = None


def _this_task() -> asyncio.Task[object] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def run_terminated() -> Fail:
    """What ends a run whose RunOptions were told to `terminate`."""
    return Fail("the run was ended by RunOptions.terminate")

"""Ending what a task waits for, from elsewhere: cancelled loads, terminated runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from pyruntime.errors import Fail, OrtError

__all__ = ["Switch", "run_terminated", "within"]

_LOOK_S = 1.0
"""Seconds between two looks at whose time is over: a timer for each run would outlive it by the limit in a browser."""


class Switch:
    """Off at first; turning it on ends the tasks that are within its `ends`. May be turned from any thread."""

    def __init__(self) -> None:
        self._on = False
        self._inside: list[_Inside] = []

    def __reduce__(self) -> tuple[type[Switch], tuple[()]]:
        """Pickle as one that is off: what it ends is of this process."""
        return Switch, ()

    @property
    def on(self) -> bool:
        """Whether it is on."""
        return self._on

    def turn(self, on: bool) -> None:
        """Turn the switch on or off."""
        self._on = on
        if on:
            for inside in tuple(self._inside):
                inside.tell()

    @contextmanager
    def ends(self, error: Callable[[], OrtError]) -> Iterator[None]:
        """Turned on before, this raises what `error` makes; turned on meanwhile, the await that the task is in does.

        A task that other code cancels as well stays cancelled. Where there is no event loop nothing is awaited: then
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
            del task  # it holds the exception, whose traceback holds this frame


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


class _Clock:
    """Turns switches on whose time is over, as long as there are any. One of each event loop."""

    def __init__(self) -> None:
        self.ends: dict[Switch, float] = {}
        self._ticking = False

    def tick(self, loop: asyncio.AbstractEventLoop) -> None:
        """Look again when the next may be over."""
        if self.ends and not self._ticking:
            self._ticking = True
            left = min(self.ends.values()) - time.monotonic()
            loop.call_later(min(max(left, 0.0), _LOOK_S), self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._ticking = False
        now = time.monotonic()
        for switch in [s for s, end in self.ends.items() if end <= now]:
            del self.ends[switch]
            switch.turn(True)
        self.tick(loop)


_clocks: WeakKeyDictionary[asyncio.AbstractEventLoop, _Clock] = WeakKeyDictionary()


@contextmanager
def within(seconds: float, error: Callable[[], OrtError]) -> Iterator[None]:
    """After `seconds`, the await that the task is in raises what `error` makes; up to a second later.

    Where there is no event loop nothing is awaited, and nothing ends.
    """
    task = _this_task()
    if task is None:
        yield
        return
    loop, switch = task.get_loop(), Switch()
    del task  # as in `Switch.ends`
    clock = _clocks.setdefault(loop, _Clock())
    clock.ends[switch] = time.monotonic() + seconds
    clock.tick(loop)
    try:
        with switch.ends(error):
            yield
    finally:
        clock.ends.pop(switch, None)


def _this_task() -> asyncio.Task[object] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def run_terminated() -> Fail:
    """Return the exception of a run whose RunOptions were told to `terminate`."""
    return Fail("the run was ended by RunOptions.terminate")

"""Concurrent awaits: several pieces of a device's work, and what their exceptions hold."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Coroutine
from typing import Any

from pyruntime.device.blocking import is_blocking, let_others

__all__ = ["all_of", "forget_frames"]


async def all_of(*parts: Coroutine[Any, Any, object]) -> None:
    """Wait for all of these, also where one fails: what the others allocate meanwhile has to be freed.

    Raises what the first of these raised, in the order of the arguments: one may fail only because one before it does.
    """
    failures: dict[int, BaseException] = {}
    try:
        noted = [_noted(i, part, failures) for i, part in enumerate(parts)]
        await (_alternating(noted) if is_blocking() else asyncio.gather(*noted, return_exceptions=True))
        if failures:
            raise failures[min(failures)]
    finally:
        for part in parts:
            part.close()  # one that was cancelled before its first turn has not begun
        failures.clear()  # a traceback that leads to this frame, which holds its exception, would be a cycle


async def _alternating(parts: list[Coroutine[Any, Any, None]]) -> None:
    """Drive each part until it lets others go on or ends, until all have ended."""
    while parts:
        for part in list(parts):
            try:
                part.send(None)
            except StopIteration:
                parts.remove(part)
        if parts:
            await let_others()


async def _noted(number: int, part: Coroutine[Any, Any, object], failures: dict[int, BaseException]) -> None:
    """Await `part`, and keep what it raises, which refers to nothing that `part` had, in `failures`.

    In Pyodide the frames of a task lead back to it, and to the future that it waited for last. So a task that raised
    this itself would be a cycle, which keeps the locals of all frames on the way to the caller that handles it.
    """
    try:
        await part
    except BaseException as error:  # noqa: BLE001  # boundary: all_of raises it when the others have ended
        forget_frames(error)
        failures[number] = error
    finally:
        del failures


def forget_frames(error: BaseException) -> None:
    """Empty the frames that an exception, its causes and contexts came through, but for those that go on.

    In Pyodide's event loop the frames of a task that ends with an exception lead back to the task and the exception: a
    cycle, which would keep all that they refer to.
    """
    seen, todo = set[int](), [error]
    while todo:
        one = todo.pop()
        if id(one) not in seen:
            seen.add(id(one))
            traceback.clear_frames(one.__traceback__)
            todo += [e for e in (one.__cause__, one.__context__) if e is not None]

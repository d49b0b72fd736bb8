"""Concurrent awaits of a device's work, without reference cycles through exceptions."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Coroutine
from typing import Any

from pyruntime.device.blocking import is_blocking, let_others

__all__ = ["all_of", "forget_frames"]


async def all_of(*parts: Coroutine[Any, Any, object]) -> None:
    """Wait for all coroutines, even if one fails: what the others allocate has to be freed by the caller.

    Raises the exception of the first failed coroutine in argument order, since later failures may follow from it.
    """
    failures: dict[int, BaseException] = {}
    try:
        noted = [_noted(i, part, failures) for i, part in enumerate(parts)]
        await (_alternating(noted) if is_blocking() else asyncio.gather(*noted, return_exceptions=True))
        if failures:
            raise failures[min(failures)]
    finally:
        for part in parts:
            part.close()  # a coroutine that was cancelled before it started has to be closed
        failures.clear()  # else the traceback, this frame and the exception form a cycle


async def _alternating(parts: list[Coroutine[Any, Any, None]]) -> None:
    """Run the coroutines alternately, each up to its next `let_others`, until all have ended."""
    while parts:
        for part in list(parts):
            try:
                part.send(None)
            except StopIteration:
                parts.remove(part)
        if parts:
            await let_others()


async def _noted(number: int, part: Coroutine[Any, Any, object], failures: dict[int, BaseException]) -> None:
    """Await `part`; store its exception, without the frames' locals, in `failures[number]`.

    In Pyodide the frames of a task refer to the task and to the future it last waited for. A task that raised this
    exception itself would be a cycle, which keeps alive the locals of all frames up to the handler.
    """
    try:
        await part
    except BaseException as error:  # noqa: BLE001  # boundary: all_of raises it when the others have ended
        forget_frames(error)
        failures[number] = error
    finally:
        del failures


def forget_frames(error: BaseException) -> None:
    """Clear the frames of an exception, its causes and contexts, except frames that are still running.

    In Pyodide's event loop the frames of a task that ends with an exception refer to the task and the exception: a
    cycle, which would keep all their locals alive.
    """
    seen, todo = set[int](), [error]
    while todo:
        one = todo.pop()
        if id(one) not in seen:
            seen.add(id(one))
            traceback.clear_frames(one.__traceback__)
            todo += [e for e in (one.__cause__, one.__context__) if e is not None]

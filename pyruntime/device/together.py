"""Several pieces of a device's work, awaited together."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Coroutine
from typing import Any

__all__ = ["all_of", "forget_frames"]


async def all_of(*parts: Coroutine[Any, Any, object]) -> None:
    """Wait for all of these, also where one fails: what the others allocate meanwhile has to be freed.

    Raises what the first of them raised.
    """
    try:
        outcomes = await asyncio.gather(*map(_forgetful, parts), return_exceptions=True)
    finally:
        for part in parts:
            part.close()  # one that was cancelled before its first turn has not begun
    failed = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    del outcomes
    if failed:
        try:
            raise failed[0]
        finally:
            failed.clear()  # a traceback that leads to this frame, which holds its exception, would be a cycle


async def _forgetful(part: Coroutine[Any, Any, object]) -> object:
    """`part`, whose exceptions refer to nothing that it had."""
    try:
        return await part
    except BaseException as error:
        forget_frames(error)
        raise


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

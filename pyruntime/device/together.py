"""Things that a device does at once."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any

__all__ = ["all_of"]


async def all_of(*parts: Coroutine[Any, Any, object]) -> None:
    """Wait for all of these, also where one fails: what the others allocate meanwhile has to be freed.

    Raises what the first of them raised.
    """
    outcomes = await asyncio.gather(*map(_begun, parts), return_exceptions=True)
    failed = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    del outcomes
    if failed:
        try:
            raise failed[0]
        finally:
            failed.clear()  # a traceback that leads to this frame, which holds its exception, would be a cycle


def _begun(part: Coroutine[Any, Any, object]) -> asyncio.Task[object]:
    """A task that has come to where it waits for the first time, where Python can have one (3.12).

    Otherwise that is a turn of the event loop later. In a browser there may be much in front of that: all that came
    while Python was planning.
    """
    if sys.version_info >= (3, 12):
        return asyncio.Task(part, loop=asyncio.get_running_loop(), eager_start=True)
    return asyncio.ensure_future(part)

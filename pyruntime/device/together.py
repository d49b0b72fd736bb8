"""Several pieces of a device's work, awaited together."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

__all__ = ["all_of"]


async def all_of(*parts: Coroutine[Any, Any, object]) -> None:
    """Wait for all of these, also where one fails: what the others allocate meanwhile has to be freed.

    Raises what the first of them raised.
    """
    outcomes = await asyncio.gather(*parts, return_exceptions=True)
    failed = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    del outcomes
    if failed:
        try:
            raise failed[0]
        finally:
            failed.clear()  # a traceback that leads to this frame, which holds its exception, would be a cycle

"""Things that a device does at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

__all__ = ["all_of"]


async def all_of(*parts: Awaitable[object]) -> None:
    """Wait for all of these, also where one fails: what the others allocate meanwhile has to be freed.

    Raises what the first of them raised.
    """
    for outcome in await asyncio.gather(*parts, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome

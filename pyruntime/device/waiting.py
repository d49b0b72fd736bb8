"""Waiting for the GPU by asking, as web/waiting.js does: browsers look whether work is done when they are asked.

Chromium looks by itself every few milliseconds, Firefox every 100, and there only a submit makes it look.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

__all__ = ["attend"]

_GRACE_S = 0.002
"""Seconds of asking that every wait has."""

_SHARE = 0.05
"""Of the time that a wait takes beyond that, the part that asking may take."""

_LONGEST_S = 0.02
_BEHIND_S = 0.002
"""As what an answer counts at most: it may have waited behind the work that it asks about."""

JsObject = Any


async def attend(gpu: JsObject, promise: JsObject, to_object: Callable[[object], JsObject], exact: bool = False) -> Any:
    """The value of `promise`, which the progress of `gpu` fulfils, soon after it can be.

    Args:
        gpu: a GPUDevice.
        to_object: a Python list as JavaScript's.
        exact: ask all the time, where the time itself is wanted.
    """
    awaited = asyncio.ensure_future(promise)
    asked, questions = 0.0, 0
    while not awaited.done():
        if asked >= _GRACE_S and not exact:
            interval = min(_LONGEST_S, max(0.001, asked / questions / _SHARE))
            await asyncio.wait([awaited], timeout=interval)
            if awaited.done():
                break
        began = time.perf_counter()
        if not await _ask(gpu, awaited, to_object):
            break
        asked += min(time.perf_counter() - began, _BEHIND_S)
        questions += 1
    return await awaited


async def _ask(gpu: JsObject, awaited: asyncio.Future[Any], to_object: Callable[[object], JsObject]) -> bool:
    """Ask, and wait for the answer or for `awaited`; False where the device does not answer."""
    gpu.pushErrorScope("validation")
    gpu.queue.submit(to_object([]))
    answer: asyncio.Future[Any] = asyncio.ensure_future(gpu.popErrorScope())
    answer.add_done_callback(lambda done: done.cancelled() or done.exception())
    await asyncio.wait([awaited, answer], return_when=asyncio.FIRST_COMPLETED)
    return not (answer.done() and answer.exception())

"""Planning before there is a model: while Python waits for one, so that the browser has compiled what planning runs.

Browsers compile a function of WebAssembly when it is called for the first time, and better, in other threads, when it
was called often. For that the first plan in a page takes three times as long as later ones. These are of small graphs,
a few milliseconds each later on, and what comes of them is forgotten. Anything that is wanted of Python ends them.

Measured in Chromium 156 on two cores, reading and planning together, the first model of a page: PVT 342 ms without, 133
with 0.3 s of this half a second before; MobileViT 381 and 140, EfficientNet 241 and 86.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from pyruntime.session.first_use import begun

__all__ = ["PIECES", "SECONDS", "rehearse"]

PIECES: list[Callable[[], object]] = []
"""What plans a small graph each. The memory snapshot has them (tools/snapshot/warm.py), Python from nothing none."""

SECONDS = 0.4
"""Time of the processor that it takes at most: by then the browser has seen what is called often."""

_left = SECONDS


async def rehearse(waits: Callable[[], bool] = lambda: True) -> int:
    """Plan graphs in turn while `waits()`, until something else begins or the time is up; how many were planned.

    What is left of the time is for the next who asks: altogether Python does this for `SECONDS`.
    """
    global _left
    seen, count = begun(), 0
    while PIECES and _left > 0 and begun() == seen and waits():
        start = time.perf_counter()
        PIECES[count % len(PIECES)]()
        _left -= time.perf_counter() - start
        count += 1
        await asyncio.sleep(0)  # whatever else has come has its turn
    return count

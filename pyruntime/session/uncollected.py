"""Work during which Python does not look for cyclic garbage.

Reading and planning a model make some 100,000 objects that stay, and hardly a cycle: the collector goes over them again
and again, which takes 4 % of the time (MobileViT, Pyodide), and once more behind it. So what was made
joins the oldest objects, which are looked at rarely, without being looked at.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["uncollected"]


@contextmanager
def uncollected() -> Iterator[None]:
    """Leave the collector off inside, where it was on. For work that neither waits nor goes on for seconds."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if not gc.get_freeze_count():  # what somebody has frozen stays so
                gc.freeze()
                gc.unfreeze()
            gc.enable()

"""Prefaults the pages of memory-mapped files, while the GPU opens and in parallel with the upload that copies them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

import numpy as np

from pyruntime.onnx.formats.source import Buffer, MappedSource

__all__ = ["prefault"]

MOST = 1 << 30
"""Bytes that are prefaulted at most: a file that memory does not hold would be read twice."""

PAGE = 4096
"""Bytes of the smallest pages."""


def prefault(sources: Iterable[object]) -> None:
    """Begin to prefault those of these sources that are memory-mapped files, in a thread."""
    files = {id(source): source for source in sources if isinstance(source, MappedSource)}
    if files:
        views = [source.read(0, source.size) for source in files.values()]
        threading.Thread(target=_touch, args=(views,), name="pyruntime-prefault", daemon=True).start()


def _touch(views: Sequence[Buffer]) -> None:
    """Read a byte of each page, without the interpreter's lock."""
    left = MOST
    for view in views:
        np.frombuffer(view, np.uint8)[: max(left, 0) : PAGE].max(initial=0)
        left -= len(view)

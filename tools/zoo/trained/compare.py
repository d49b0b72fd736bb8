"""When the results of a trained model agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tools.zoo.compare import complaint

__all__ = ["complaint_of", "plain"]


def plain(value: Any) -> np.ndarray[Any, Any]:
    """An output as an array: of a sequence of maps, their values in the order of their keys."""
    if isinstance(value, dict):
        return np.array([value[key] for key in sorted(value)])
    if isinstance(value, list | tuple):
        return np.stack([plain(entry) for entry in value]) if len(value) else np.zeros(0, np.float32)
    return np.asarray(value)


def complaint_of(got: Sequence[Any], witnesses: Sequence[Sequence[Any]], names: Sequence[str]) -> str:
    """How outputs differ from every witness, or nothing.

    A witness is what onnxruntime gives at one level of optimisation. An output agrees with one as `complaint` says, or
    where it is as near to it as the witnesses are to one another; whole numbers and truth values have to be the same.
    """
    for number, name in enumerate(names):
        mine, theirs = got[number], [w[number] for w in witnesses]
        told = [complaint([mine], [y], [name]) for y in theirs]
        if all(told) and not _between(mine, theirs):
            return told[0]
    return ""


def _between(mine: Any, theirs: Sequence[Any]) -> bool:
    x, every = np.asarray(mine), [np.asarray(y) for y in theirs]
    if any(y.shape != x.shape or y.dtype != x.dtype or x.dtype.kind != "f" for y in every):
        return False
    if not all(np.array_equal(np.isfinite(x), np.isfinite(y)) for y in every):
        return False
    wide = max(_apart(every[0], y) for y in every)
    return min(_apart(x, y) for y in every) <= wide


def _apart(x: Any, y: Any) -> float:
    finite = np.isfinite(x) & np.isfinite(y)
    return float(np.abs(x[finite].astype(np.float64) - y[finite]).max(initial=0.0))

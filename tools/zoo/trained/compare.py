"""Comparison of a trained model's results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tools.zoo.compare import RELATIVE, complaint

__all__ = ["complaint_of", "difference", "spread_of"]


def spread_of(witnesses: Sequence[Sequence[Sequence[Sequence[Any]]]]) -> list[float]:
    """Return for each output the largest distance between two witnesses, over all steps of all runs.

    A witness is the set of onnxruntime's outputs at one level of optimization.
    """
    first = [outputs for run in witnesses[0] for outputs in run]
    spread = [0.0] * len(first[0])
    for witness in witnesses[1:]:
        for mine, theirs in zip(first, [outputs for run in witness for outputs in run], strict=True):
            for number, (x, y) in enumerate(zip(mine, theirs, strict=True)):
                if x.shape == y.shape and x.dtype.kind == "f":
                    spread[number] = max(spread[number], _apart(x, y))
    return spread


def complaint_of(
    got: Sequence[Any],
    witnesses: Sequence[Sequence[Any]],
    names: Sequence[str],
    spread: Sequence[float],
    part: float = RELATIVE,
) -> str:
    """Describe how outputs differ from every witness, or return ''.

    An output agrees with a witness as `complaint` defines it for `part`, or if it is as near as the witnesses are to
    each other; integers and booleans have to be equal.
    """
    for number, name in enumerate(names):
        mine, theirs = got[number], [w[number] for w in witnesses]
        told = [complaint([mine], [y], [name], part) for y in theirs]
        if all(told) and not any(_near(mine, y, spread[number]) for y in theirs):
            return f"{told[0]}; onnxruntime's own differ by {spread[number]:.3g}" if spread[number] else told[0]
    return ""


def difference(got: Sequence[Any], witnesses: Sequence[Sequence[Any]]) -> float:
    """Return the largest distance of an output to the nearest witness, relative to its largest value."""
    found = 0.0
    for number, x in enumerate(got):
        theirs = [w[number] for w in witnesses if w[number].shape == x.shape]
        parts = [_apart(x, y) / max(float(np.abs(y[np.isfinite(y)]).max(initial=0)), 1e-6) for y in theirs]
        found = max(found, min(parts, default=float("inf")))
    return found


def _near(x: Any, y: Any, distance: float) -> bool:
    if x.shape != y.shape or x.dtype != y.dtype or x.dtype.kind != "f":
        return False
    return np.array_equal(np.isfinite(x), np.isfinite(y)) and _apart(x, y) <= distance


def _apart(x: Any, y: Any) -> float:
    finite = np.isfinite(x) & np.isfinite(y)
    return float(np.abs(x[finite].astype(np.float64) - y[finite].astype(np.float64)).max(initial=0.0))

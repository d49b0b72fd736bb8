"""Matrices of test cases: a sample of them, or all with PYRUNTIME_SOAK (`python3 dev.py soak`)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import combinations, product
from typing import Any

__all__ = ["ALL", "matrix"]

ALL = bool(os.environ.get("PYRUNTIME_SOAK"))


def matrix(*dimensions: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Combinations of a value of each dimension, for `parametrize`: all, or as few as let every two values meet."""
    every = list(product(*(range(len(values)) for values in dimensions)))
    chosen = every if ALL else pairwise(every)
    return [tuple(values[i] for values, i in zip(dimensions, at, strict=True)) for at in chosen]


def pairwise(every: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Of `every`, in its order, what has each pair of two places' values at least once."""

    def pairs(at: tuple[int, ...]) -> set[tuple[tuple[int, int], ...]]:
        return set(combinations(enumerate(at), 2))

    missing = {pair for at in every for pair in pairs(at)}
    chosen = set()
    while missing:
        best = max(every, key=lambda at: len(pairs(at) & missing))
        missing -= pairs(best)
        chosen.add(best)
    return [at for at in every if at in chosen]

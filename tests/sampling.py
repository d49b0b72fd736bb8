"""Which tests a run has: of matrices of cases a sample, all of them with PYRUNTIME_SOAK (`python3 dev.py soak`); with
PYRUNTIME_SAMPLE (`python3 dev.py test`) those of one day."""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from itertools import combinations, product
from typing import Any

import pytest

__all__ = ["ALL", "in_sample", "leave_out", "matrix"]

ALL = bool(os.environ.get("PYRUNTIME_SOAK"))


def matrix(*dimensions: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Combinations of a value of each dimension, for `parametrize`: all, or as few as let every two values meet."""
    every = list(product(*(range(len(values)) for values in dimensions)))
    chosen = every if ALL else pairwise(every)
    return [tuple(values[i] for values, i in zip(dimensions, at, strict=True)) for at in chosen]


def in_sample(name: str, sample: str) -> bool:
    """Whether a test is one of `sample`, '2/5': a fifth of all, by checksum of their names, and the third of five."""
    number, parts = map(int, sample.split("/"))
    return zlib.crc32(name.encode()) % parts == number


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what is not in the sample that PYRUNTIME_SAMPLE names; without it nothing."""
    if sample := os.environ.get("PYRUNTIME_SAMPLE"):
        config.hook.pytest_deselected(items=[item for item in items if not in_sample(item.nodeid, sample)])
        items[:] = [item for item in items if in_sample(item.nodeid, sample)]


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

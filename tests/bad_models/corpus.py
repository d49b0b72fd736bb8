"""All bad models."""

from __future__ import annotations

from functools import lru_cache

from tests.bad_models import files, graphs, runs, tensors
from tests.bad_models.case import Case

__all__ = ["cases"]


@lru_cache(maxsize=1)
def cases() -> dict[str, Case]:
    """Every case by name."""
    every = [case for source in (files, graphs, tensors, runs) for case in source.cases()]
    by_name = {case.name: case for case in every}
    assert len(by_name) == len(every), "two cases of the same name"
    return by_name

"""The context in which a recipe generates a value."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

__all__ = ["Context"]


@dataclass(frozen=True)
class Context:
    """The run and step of a value.

    Attributes:
        shape: shape of the value. sizes: letters, and their values in this run.
        step: index of the step in its run. seed: equal in all steps of a run.
        assets: 'package:path' of files with values.
    """

    shape: tuple[int, ...]
    sizes: Mapping[str, int]
    step: int
    seed: int
    assets: Sequence[str] = ()

    def of(self, shape: tuple[int, ...], name: str) -> Context:
        """Return the context of an input with this shape and name."""
        return replace(self, shape=shape, seed=self.seed ^ zlib.crc32(name.encode()))

    @property
    def random(self) -> np.random.Generator:
        """Return a random generator that differs between steps."""
        return np.random.default_rng([self.seed, self.step])

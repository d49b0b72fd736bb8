"""What a recipe knows of the value that it makes."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

__all__ = ["Context"]


@dataclass(frozen=True)
class Context:
    """The place of a value.

    Attributes:
        shape: of the value. sizes: letters, and their values in this run.
        step: number of the step in its run. seed: the same in all steps of a run.
        assets: 'package:path' of files with values.
    """

    shape: tuple[int, ...]
    sizes: Mapping[str, int]
    step: int
    seed: int
    assets: Sequence[str] = ()

    def of(self, shape: tuple[int, ...], name: str) -> Context:
        """The context of an input of this shape and name."""
        return replace(self, shape=shape, seed=self.seed ^ zlib.crc32(name.encode()))

    @property
    def random(self) -> np.random.Generator:
        """Random numbers that differ between steps."""
        return np.random.default_rng([self.seed, self.step])

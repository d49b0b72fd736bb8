"""Generators of random numbers for operators without attribute `seed`, which `set_seed` makes reproducible.

Sessions that are made after `set_seed` draw the same numbers as each other. Each operator of a session has a generator,
which continues from run to run.
"""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Randomness", "set_seed"]

_MODULUS = 2**32

_seed: int | None = None


def set_seed(seed: int) -> None:
    """Have operators without attribute `seed` draw numbers that follow from this one, in sessions made from now on."""
    global _seed
    _seed = index(seed)


class Randomness:
    """The generators of one session."""

    def __init__(self) -> None:
        self._seed = _seed
        self._generators: dict[int, tuple[object, np.random.RandomState]] = {}

    def generator(self, operator: object, seed: int | None) -> np.random.RandomState:
        """The generator for the next numbers of `operator`: a new one where it has a `seed`."""
        import numpy as np

        if seed is not None:
            return np.random.RandomState(seed % _MODULUS)
        if self._seed is None:
            return np.random.RandomState()
        made = self._generators.get(id(operator))
        if made is None:
            number = len(self._generators)
            made = operator, np.random.RandomState([self._seed % _MODULUS, number])
            self._generators[id(operator)] = made
        return made[1]

"""Random number generators of operators without a `seed` attribute; `set_seed` makes them reproducible.

Sessions created after `set_seed` draw identical numbers. Each operator of a session has a generator, whose sequence
continues from run to run.
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
    """Seed the random operators without a `seed` attribute, in sessions created from now on."""
    global _seed
    _seed = index(seed)


class Randomness:
    """Random number generators of one session."""

    def __init__(self) -> None:
        self._seed = _seed
        self._generators: dict[int, tuple[object, np.random.RandomState]] = {}

    def generator(self, operator: object, seed: int | None) -> np.random.RandomState:
        """Return the generator to draw from for `operator`: a new one if the operator has a `seed`."""
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

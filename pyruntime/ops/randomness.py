"""Generators of random numbers for operators without a seed of their own, as `set_seed` wants them.

A session that is made after `set_seed` draws the same numbers as another one made after it; each of its operators has
numbers of its own, and goes on with them from run to run.
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
    """Have operators without a seed of their own draw numbers that follow from `seed`, in sessions made from now on."""
    global _seed
    _seed = index(seed)


class Randomness:
    """The generators of one session."""

    def __init__(self) -> None:
        self._seed = _seed
        self._generators: dict[int, tuple[object, np.random.RandomState]] = {}

    def generator(self, operator: object, seed: int | None) -> np.random.RandomState:
        """The generator for the next numbers of `operator`: anew from its own `seed`, where it has one."""
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

"""Bounds of integers that kernels clamp, so that the host has to refuse what is outside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pyruntime.errors import RuntimeException
from pyruntime.ir.types import Array

__all__ = ["Bound", "InputBound", "check_integers"]


@dataclass(frozen=True, slots=True)
class Bound:
    """The least and the greatest integer that an operator computes on in one of its inputs.

    Attributes:
        input: number of the operator's input.
        least, most: ints or Dims.
        what: the integers, in the plural. reason: what the range is. step: what to do about others.
        every: first and distance of the elements that it is about, in row-major order.
    """

    input: int
    least: Any
    most: Any
    what: str
    reason: str
    step: str
    every: tuple[int, int] = (0, 1)

    @property
    def texts(self) -> tuple[str, str, str]:
        """What an error says before the range, between the range and the integer, and after its index."""
        return f"expected {self.what} in ", f", {self.reason}, got ", f" of the {self.what}; {self.step}"

    def check(self, values: Array) -> None:
        """Raise RuntimeException where one of `values` is outside."""
        check_integers(values, self.least, self.most, self.texts, self.every)


@dataclass(frozen=True, slots=True)
class InputBound:
    """A bound of an input of a graph.

    Attributes:
        input: its name; empty where constants are outside, for which no run is right.
        least, most, texts, every: as a Bound has them; the first text begins with the node.
    """

    input: str
    least: Any
    most: Any
    texts: tuple[str, str, str]
    every: tuple[int, int] = (0, 1)


def check_integers(
    values: Array, least: int, most: int, texts: tuple[str, str, str], every: tuple[int, int] = (0, 1)
) -> None:
    """Raise RuntimeException where one of `values` is not in [least, most]; `texts`, `every`: as a Bound has them."""
    first, distance = every
    checked = values.reshape(-1)[first::distance]
    wrong = (checked < least) | (checked > most)
    if wrong.any():
        number = first + distance * int(np.argmax(wrong))
        at = tuple(map(int, np.unravel_index(number, values.shape)))
        before, between, after = texts
        raise RuntimeException(f"{before}[{least}, {most}]{between}{values[at]} at {list(at)}{after}")

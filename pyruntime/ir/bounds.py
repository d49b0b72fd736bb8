"""Ranges of integer inputs that kernels clamp to, so that the host must refuse values outside of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pyruntime.errors import RuntimeException
from pyruntime.ir.types import Array

__all__ = ["Bound", "InputBound", "check_integers"]


@dataclass(frozen=True, slots=True)
class Bound:
    """The range of integers that an operator accepts in one of its inputs.

    Attributes:
        input: index of the operator's input.
        least, most: the range, inclusive; ints or Dims.
        what: name of the integers, in the plural. reason: why the range is this one. step: what the user can do.
        every: (first, step) in row-major order of the elements that the range applies to.
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
        """Parts of the error text: before the range, between the range and the value, and after the value's index."""
        return f"expected {self.what} in ", f", {self.reason}, got ", f" of the {self.what}; {self.step}"

    def check(self, values: Array) -> None:
        """Raise RuntimeException if one of `values` is out of range."""
        check_integers(values, self.least, self.most, self.texts, self.every)


@dataclass(frozen=True, slots=True)
class InputBound:
    """The range of integers that a graph accepts in one of its inputs.

    Attributes:
        input: name of the input; empty where constants are out of range, so that every run fails.
        least, most, texts, every: as in Bound; the first text starts with the node.
    """

    input: str
    least: Any
    most: Any
    texts: tuple[str, str, str]
    every: tuple[int, int] = (0, 1)


def check_integers(
    values: Array, least: int, most: int, texts: tuple[str, str, str], every: tuple[int, int] = (0, 1)
) -> None:
    """Raise RuntimeException if one of `values` is not in [least, most]; `texts` and `every` are as in Bound."""
    first, distance = every
    checked = values.reshape(-1)[first::distance]
    wrong = (checked < least) | (checked > most)
    if wrong.any():
        number = first + distance * int(np.argmax(wrong))
        at = tuple(map(int, np.unravel_index(number, values.shape)))
        before, between, after = texts
        raise RuntimeException(f"{before}[{least}, {most}]{between}{values[at]} at {list(at)}{after}")

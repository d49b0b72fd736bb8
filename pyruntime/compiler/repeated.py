"""Commands that run several times in a row, and the order that makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["Repeated", "order_of"]


@dataclass(frozen=True, slots=True)
class Repeated:
    """`count` commands from `first` on run `times` times, one sequence after the other.

    Attributes:
        times: for the sizes seen.
        scaled: number in `Plan.expressions` of how often it is, -1 where it is always `times`.
    """

    first: int
    count: int
    times: int
    scaled: int = -1

    def trips(self, numbers: Sequence[int]) -> int:
        """How often it is in a run for which the plan's expressions have these values."""
        return self.times if self.scaled < 0 else numbers[self.scaled]


def order_of(count: int, repeated: Sequence[Repeated], trips: Callable[[Repeated], int]) -> list[int]:
    """The numbers of `count` commands in the order in which they run.

    Args:
        repeated: loops by their first command; those within another one come after it.
    """

    def within(at: int, end: int, loops: Sequence[Repeated]) -> list[int]:
        order: list[int] = []
        while loops:
            loop, stop = loops[0], loops[0].first + loops[0].count
            inner = [other for other in loops[1:] if other.first < stop]
            order += range(at, loop.first)
            order += within(loop.first, stop, inner) * trips(loop)
            at, loops = stop, loops[1 + len(inner) :]
        return [*order, *range(at, end)]

    return within(0, count, repeated)

"""Order by levels: nodes that need nothing of each other stand together, so that a GPU may run them at once.

The level of a node is the longest way to it from what is there from the start. What such an order brings was measured
(bench/README.md); it is not what plans take.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyruntime.plan.placement import Placed

__all__ = ["by_levels"]


def by_levels(placed: Sequence[Placed]) -> list[Placed]:
    """`placed`, which stand behind what they read, by their levels; within a level as they were."""
    made: dict[str, int] = {}
    levels = []
    for p in placed:
        level = max((made[n] + 1 for n in p.reads if n in made), default=0)
        levels.append(level)
        made |= {n: level for n in p.node.outputs if n}
    return [placed[i] for i in sorted(range(len(placed)), key=levels.__getitem__)]

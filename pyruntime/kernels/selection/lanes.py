"""Rows that invocations share: how many of them, and what folding a row costs so.

A row is the elements of a reduction's result, of a softmax, of a norm. `LANES` invocations each fold a share of it, in
turns of four elements whose loads are on their way together; then the partial results are reduced, those of one half
of the invocations with those of the other, until one is left: in workgroup memory, a barrier each time, or, where
subgroups of a device have one size, by `shaders/parts/lanes.wgsl`, which combines the same pairs in the same order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pyruntime.kernels.ir.costs import Work
from pyruntime.kernels.selection.measurements import (
    FOLD_ALONE,
    FOLD_APART,
    FOLD_FLOPS,
    FOLD_HELD,
    FOLD_LEVEL,
    FOLD_PACK,
    FOLD_SHUFFLE,
    FOLD_TURN,
)
from pyruntime.target import WORKGROUP, Target

__all__ = [
    "BY_EIGHT",
    "BY_FOUR",
    "EACH",
    "REDUCING",
    "WIDE",
    "Folding",
    "Lanes",
    "barriers",
    "busy",
    "moved_for_one",
    "power",
    "priced",
    "refuses_lanes",
    "shortest",
    "shuffled",
    "workgroup_of",
]

SHORT = 32
"""Elements of a row that one invocation folds in no more turns than reducing partial results takes."""

FILLED = 2
"""Times `Rates.resident` that invocations which only fold are on a unit."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """Invocations a row: one for `by` elements, at least `least` and at most `most`, powers of two; `by` 0: one a row.

    Attributes:
        narrower: fewer invocations a row. enough: how many rows a unit keep it busy with those.
    """

    by: int
    most: int = 1
    least: int = 1
    narrower: Lanes | None = None
    enough: int = 0

    def of(self, length: int, target: Target) -> int:
        """Return the lanes for rows of `length` elements."""
        if not self.by:
            return 1
        most = min(self.most, target.limits.invocations, target.limits.workgroup_x)
        return power(min(most, max(self.least, length // self.by)))


EACH = Lanes(0)
BY_EIGHT = Lanes(8, 4 * WORKGROUP)
BY_FOUR = Lanes(4, 4 * WORKGROUP, narrower=BY_EIGHT, enough=8)
WIDE = Lanes(4, 16 * WORKGROUP, narrower=BY_FOUR, enough=2)


def power(number: float) -> int:
    """The largest power of two that is not above a number of at least 1."""
    return 1 << (int(number).bit_length() - 1)


def workgroup_of(lanes: int) -> int:
    """Invocations of a workgroup whose rows have `lanes` each."""
    return max(WORKGROUP, lanes)


AT_ONCE = 8
"""Partial results in workgroup memory that an invocation of `parts/lanes.wgsl` reduces between two barriers."""


def shuffled(target: Target, lanes: int, apart: int = 1) -> dict[str, int]:
    """What templates that include `parts/lanes.wgsl` are told; nothing where workgroup memory reduces them.

    Args:
        lanes: invocations that reduce their partial results. apart: how far each is from the next.
    """
    if lanes == 1 or not target.subgroup:
        return {}
    across = {"ACROSS": 1} if barriers(lanes, target.subgroup, apart) else {}
    return {"SUBGROUP": target.subgroup, **across, **({"APART": apart} if apart > 1 else {})}


def priced(target: Target) -> int:
    """Invocations that shuffle, for costs; 0: reducing costs what it does in workgroup memory. So on processors: what
    they pay for is that invocations stop at all (SwiftShader, measured: two barriers instead of nine save a tenth)."""
    return 0 if target.is_software else target.subgroup_size


def barriers(lanes: int, subgroup: int, apart: int = 1) -> int:
    """Barriers of `parts/lanes.wgsl` until one invocation has reduced the partial results of all."""
    close, wide, found = max(subgroup, apart), lanes * apart, 0
    while wide > close:
        wide, found = max(close, wide // AT_ONCE), found + 1
    return found


def busy(target: Target) -> int:
    """Invocations that keep all of a device busy while they only fold, a power of two."""
    return power(FILLED * target.speed.resident * target.speed.units)


def shortest(target: Target, dispatches: int) -> int:
    """Elements that an invocation folds in the time of some dispatches, a power of two."""
    rates = target.speed
    element = FOLD_TURN * rates.load / 4 + FOLD_PACK * FOLD_FLOPS * rates.units / rates.flops
    return 2 * power(max(1.0, dispatches * rates.dispatch / element))


def refuses_lanes(lanes: Lanes, rows: int, length: int, target: Target) -> str:
    """Why `lanes` do not apply to `rows` rows."""
    if not lanes.by:
        return ""
    if length <= SHORT:
        return f"for rows of more than {SHORT} elements"
    if lanes.narrower is None:
        return ""
    if lanes.narrower.of(length, target) == lanes.of(length, target):
        return "it would be no more invocations a row"
    full = power(lanes.enough * target.speed.units)
    return f"{full} rows keep the device busy with fewer invocations each" if rows >= full else ""


def moved_for_one(target: Target, lanes: int, adjacent: bool) -> float:
    """Bytes moved for a byte of rows whose elements lie next to each other, or those of neighbouring rows do."""
    if lanes > 1:
        return 1.0 if adjacent else FOLD_APART
    return FOLD_ALONE if adjacent and not target.is_software else 1.0


@dataclass(frozen=True, slots=True)
class Folding:
    """What a kernel does with each row.

    Attributes:
        passes: times that it goes through a row, in turns of four elements.
        flops: operations that an element counts as, in all passes.
        joins: times that invocations reduce their partial results.
    """

    passes: float
    flops: float
    joins: float = 1.0

    def work(self, rows: int, length: int, lanes: int, nbytes: float, subgroup: int = 0) -> Work:
        """The dispatch in which `lanes` invocations have each row; `subgroup`: what `priced` says."""
        wide = workgroup_of(lanes)
        together = wide // lanes
        levels = math.log2(lanes)
        level = FOLD_LEVEL * levels
        if subgroup:
            level = FOLD_SHUFFLE * levels + FOLD_LEVEL * barriers(lanes, subgroup)
        packed = -(-min(rows, together) * lanes // FOLD_PACK) * FOLD_PACK
        return Work(
            groups=-(-rows // together),
            threads=max(1, wide // FOLD_HELD),
            flops=self.flops * length * packed / lanes,
            nbytes=nbytes,
            loads=FOLD_TURN * self.passes * -(-length // (4 * lanes)),
            merges=self.joins * level,
            stops=FOLD_HELD * (self.joins * levels + 1) if lanes > 1 else 0,
        )


REDUCING = Folding(1.0, FOLD_FLOPS)
"""A reduction."""

"""The kernels of normalisations with one scale a channel or group as candidates.

one_64   a workgroup of 64 invocations reads its row three times; one_256: of 256
split    workgroups share a row until the device is busy: one dispatch takes their moments, one writes
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from pyruntime.kernels.ir.costs import Work
from pyruntime.kernels.selection.candidates import Candidate, Family
from pyruntime.kernels.selection.lanes import Folding, power, priced
from pyruntime.kernels.selection.measurements import NORM_FLOPS
from pyruntime.target import Target

__all__ = ["CHUNK", "GROUP_NORMS", "SHARES", "GroupWay", "GroupsProblem", "shares_of"]

FILLING = 4
"""Workgroups a unit that keep it busy."""

LEAST = 2048
"""Elements of a workgroup's share of a row, at least."""

CHUNK = 4096
"""Elements a workgroup of the second pass writes."""

SHARES = 256
"""Most shares of a row, and the invocations that combine their moments."""

_ALONE = Folding(3.0, NORM_FLOPS, 2.0)
_MOMENTS = Folding(2.0, 2 / 3 * NORM_FLOPS)
_SPREAD = Folding(1.0, 1 / 3 * NORM_FLOPS)


@dataclass(frozen=True, slots=True)
class GroupsProblem:
    """Rows of neighbouring elements for the choice of their kernel: the most that both can be."""

    rows: int
    length: int

    @property
    def key(self) -> str:
        """'32x40960', rows by elements."""
        return f"{self.rows}x{self.length}"


@dataclass(frozen=True, slots=True)
class GroupWay:
    """What a candidate runs: a workgroup a row, of `wide` invocations; or rows `split` across workgroups."""

    wide: int
    split: bool = False


def shares_of(p: GroupsProblem, target: Target) -> int:
    """Return how many workgroups a row is split across."""
    filling = power(FILLING * target.speed.units)
    return max(1, min(-(-p.length // LEAST), -(-filling // max(1, p.rows)), SHARES))


def _alone(wide: int) -> Candidate[GroupsProblem, GroupWay]:
    def refuses(p: GroupsProblem, target: Target) -> str:
        return f"it takes {wide} invocations a workgroup" if wide > target.limits.invocations else ""

    def work(p: GroupsProblem, target: Target) -> tuple[Work, ...]:
        return (_ALONE.work(p.rows, p.length, wide, 8.0 * p.rows * p.length, priced(target)),)

    return Candidate(f"one_{wide}", GroupWay(wide), refuses, work)


def _refuses_split(p: GroupsProblem, target: Target) -> str:
    if target.limits.invocations < SHARES:
        return f"it takes {SHARES} invocations a workgroup"
    return "shares would be too short, or rows keep the device busy" if shares_of(p, target) == 1 else ""


def _split_work(p: GroupsProblem, target: Target) -> tuple[Work, ...]:
    shares, size = shares_of(p, target), p.rows * p.length
    subgroup = priced(target)
    moments = _MOMENTS.work(p.rows * shares, -(-p.length // shares), SHARES, 4.0 * size, subgroup)
    chunk = min(CHUNK, p.length)
    return moments, _SPREAD.work(p.rows * -(-p.length // CHUNK), chunk, SHARES, 8.0 * size, subgroup)


GROUP_NORMS: Family[GroupsProblem, GroupWay] = Family(
    "group normalization",
    (
        _alone(64),
        _alone(256),
        Candidate("split", GroupWay(SHARES, True), _refuses_split, _split_work, ("normalize_split",)),
    ),
    MappingProxyType(
        {"normalize_split": "long rows of group normalisation shared by workgroups; without: a workgroup a row"}
    ),
)
"""GroupNormalization, InstanceNormalization, MeanVarianceNormalization."""

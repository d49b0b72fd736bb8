"""The kernels of reductions as candidates.

each          an invocation folds all elements of a result
each_split    an invocation a share of them, until the device is busy; a second reduction combines the results
shared_8      invocations of a workgroup share a result, one for eight elements; shared_4: one for four
shared_split  workgroups of 256 share a result, until the device is busy; a second reduction combines the results
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType

from pyruntime.kernels.ir.costs import Work
from pyruntime.kernels.selection.candidates import Candidate, Family
from pyruntime.kernels.selection.lanes import (
    BY_EIGHT,
    BY_FOUR,
    EACH,
    REDUCING,
    Lanes,
    busy,
    moved_for_one,
    priced,
    refuses_lanes,
    shortest,
)
from pyruntime.target import Target

__all__ = ["REDUCTIONS", "FoldWay", "ReductionProblem", "Strategy", "joining", "strategy_of"]


@dataclass(frozen=True, slots=True)
class ReductionProblem:
    """Reductions for the choice of their kernel: the most their sizes can be.

    Attributes:
        outputs, count: results, and elements of each.
        adjacent: the elements of one result lie next to each other (else those of neighbouring results may).
        once: accumulators can not be stored between two passes.
    """

    outputs: int
    count: int
    adjacent: bool
    once: bool = False

    @property
    def key(self) -> str:
        """'768x128 apart', results by elements of each, and what else matters."""
        return f"{self.outputs}x{self.count}{'' if self.adjacent else ' apart'}{' once' if self.once else ''}"


@dataclass(frozen=True, slots=True)
class Strategy:
    """How a fold runs: `lanes` invocations, a power of two, for each of `segments` parts of a result."""

    lanes: int
    segments: int = 1


@dataclass(frozen=True, slots=True)
class FoldWay:
    """What a candidate runs; `split`: elements of a result are split across several."""

    lanes: Lanes
    split: bool = False


def strategy_of(way: FoldWay, p: ReductionProblem, target: Target) -> Strategy:
    """Return the configuration that a candidate's name stands for."""
    lanes = way.lanes.of(p.count, target)
    if not way.split or not p.outputs:
        return Strategy(lanes)
    least = lanes * shortest(target, 1 if lanes > 1 else 2)
    return Strategy(lanes, max(1, min(busy(target) // (lanes * p.outputs), p.count // least)))


def _refuses(way: FoldWay) -> Callable[[ReductionProblem, Target], str]:
    def refuses(p: ReductionProblem, target: Target) -> str:
        if not way.split:
            return refuses_lanes(way.lanes, p.outputs, p.count, target)
        if p.once:
            return "what is kept of a share has no tensor type"
        if strategy_of(way, p, target).segments == 1:
            return "shares would be too short, or results keep the device busy"
        return ""

    return refuses


def _work(way: FoldWay) -> Callable[[ReductionProblem, Target], tuple[Work, ...]]:
    def work(p: ReductionProblem, target: Target) -> tuple[Work, ...]:
        made = strategy_of(way, p, target)
        moved = 4.0 * p.outputs * (p.count * moved_for_one(target, made.lanes, p.adjacent) + made.segments)
        share = -(-p.count // made.segments)
        first = REDUCING.work(p.outputs * made.segments, share, made.lanes, moved, priced(target))
        if made.segments == 1:
            return (first,)
        rest = joining(p, made)
        return first, *REDUCTIONS.named(REDUCTIONS.rank(rest, target).chosen).work(rest, target)

    return work


def joining(p: ReductionProblem, made: Strategy) -> ReductionProblem:
    """Return the problem of the second reduction, which combines partial results."""
    return ReductionProblem(p.outputs, made.segments, p.outputs == 1, once=True)


def _candidate(name: str, way: FoldWay) -> Candidate[ReductionProblem, FoldWay]:
    switches = (*(("reduce_lanes",) if way.lanes.by else ()), *(("reduce_split",) if way.split else ()))
    return Candidate(name, way, _refuses(way), _work(way), switches)


REDUCTIONS: Family[ReductionProblem, FoldWay] = Family(
    "reduction",
    (
        _candidate("each", FoldWay(EACH)),
        _candidate("shared_8", FoldWay(BY_EIGHT)),
        _candidate("shared_4", FoldWay(BY_FOUR)),
        _candidate("shared_split", FoldWay(BY_FOUR, split=True)),
        _candidate("each_split", FoldWay(EACH, split=True)),
    ),
    MappingProxyType(
        {
            "reduce_lanes": "invocations that share a reduction; without: one invocation a result",
            "reduce_split": "long reductions in two passes; without: in one",
        }
    ),
)
"""Sums, extrema, arg-extrema and means over axes."""

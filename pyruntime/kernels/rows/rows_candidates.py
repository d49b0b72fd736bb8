"""The kernels of softmax, of norms and of scans along rows as candidates.

each         an invocation has a row
shared_8     invocations of a workgroup share a row, one for eight elements, at most 256; shared_4: one for four
shared_wide  one for four elements, at most 1,024
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType

from pyruntime.kernels.ir.costs import Work
from pyruntime.kernels.selection.candidates import Candidate, Family
from pyruntime.kernels.selection.lanes import (
    BY_EIGHT,
    BY_FOUR,
    EACH,
    WIDE,
    Folding,
    Lanes,
    moved_for_one,
    priced,
    refuses_lanes,
)
from pyruntime.kernels.selection.measurements import NORM_FLOPS, SCAN_FLOPS, SOFTMAX_FLOPS
from pyruntime.target import WORKGROUP, Target

__all__ = ["NORMS", "SCANS", "SOFTMAX", "RowsProblem", "lanes_of"]


@dataclass(frozen=True, slots=True)
class RowsProblem:
    """Rows for the choice of their kernel: the most their sizes can be.

    Attributes:
        outer, length, inner: `outer * inner` rows of `length` elements that lie `inner` apart.
    """

    outer: int
    length: int
    inner: int = 1

    @property
    def count(self) -> int:
        """How many rows."""
        return self.outer * self.inner

    @property
    def key(self) -> str:
        """'128x768': rows by elements; then 'x49' where elements lie 49 apart."""
        return f"{self.outer}x{self.length}{f'x{self.inner}' if self.inner != 1 else ''}"


def lanes_of(family: Family[RowsProblem, Lanes], problem: RowsProblem, target: Target) -> int:
    """Invocations of a row in the candidate to run."""
    return family.choose(problem, target).way.of(problem.length, target)


def _family(name: str, folding: Folding, ways: tuple[Lanes, ...], shuffles: bool = True) -> Family[RowsProblem, Lanes]:
    """`ways` to do with rows what `folding` says; `shuffles`: the kernels reduce partial results by them."""

    def candidate(named: str, way: Lanes) -> Candidate[RowsProblem, Lanes]:
        def refuses(p: RowsProblem, target: Target) -> str:
            return refuses_lanes(way, p.count, p.length, target)

        def work(p: RowsProblem, target: Target) -> tuple[Work, ...]:
            lanes = way.of(p.length, target)
            moved = 8.0 * p.count * p.length * moved_for_one(target, lanes, p.inner == 1)
            return (folding.work(p.count, p.length, lanes, moved, priced(target) if shuffles else 0),)

        def kernel(p: RowsProblem) -> str:
            return f"{named} {(p.length - 1).bit_length()} {p.inner == 1}"

        return Candidate(named, way, refuses, work, ("row_lanes",) if way.by else (), kernel=kernel)

    named = zip(("each", "shared_8", "shared_4", "shared_wide"), ways, strict=True)
    return Family(name, tuple(candidate(n, w) for n, w in named), _SWITCHES)


_SWITCHES = MappingProxyType(
    {"row_lanes": "invocations that share a row of softmax, norms and scans; without: one invocation a row"}
)

SOFTMAX = _family("softmax", Folding(2.0, SOFTMAX_FLOPS), (EACH, BY_EIGHT, BY_FOUR, WIDE))
"""Softmax, and its logarithm, along rows."""

NORMS = _family("normalization", Folding(3.0, NORM_FLOPS), (EACH, BY_EIGHT, BY_FOUR, WIDE))
"""LayerNormalization and its kin."""

_RUNS_EIGHT = replace(BY_EIGHT, least=WORKGROUP)
_RUNS_FOUR = replace(BY_FOUR, least=WORKGROUP, narrower=_RUNS_EIGHT)

_RUNS_WIDE = replace(WIDE, least=WORKGROUP, narrower=_RUNS_FOUR)

SCANS = _family("scan", Folding(8.0, SCAN_FLOPS, 2.0), (EACH, _RUNS_EIGHT, _RUNS_FOUR, _RUNS_WIDE), shuffles=False)
"""Cumulative sums and products: two passes, an element a turn, a workgroup a row where invocations share it."""

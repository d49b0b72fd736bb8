"""Kernels of a model measured on the device at hand: of all candidates for a problem the fastest is remembered."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from typing import Any

from pyruntime.device.base import Device
from pyruntime.errors import EngineError, OutOfMemory
from pyruntime.kernels import Target
from pyruntime.kernels.samples import sample
from pyruntime.kernels.selection.candidates import Noted
from pyruntime.session.markup import text_table
from pyruntime.session.tuning.measuring import Lap
from pyruntime.target import Rates, Winners

__all__ = ["Measured", "Tuned", "Tuning", "measure_candidates", "winners_of"]

_CLOSE = 0.02
"""What was chosen before stays where another is faster by less than this part: measurements differ by as much."""


_HOPELESS = 3.0
"""Candidates of more than so many times the least cost are not measured."""

_NEAR = 1.5
"""Candidates that took up to so many times the least are measured again: single measurements differ by as much."""

_TIMES = 3
"""Measurements of those."""

_ROUNDS = 3
"""Pairs of one measurement."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A candidate for a problem. Microseconds.

    Attributes:
        took: measured; NaN is never kept. cost: by `kernels.ir.costs`.
    """

    name: str
    took: float
    cost: float


@dataclass(frozen=True, slots=True)
class Tuned:
    """What was measured for a problem.

    Attributes:
        chosen: the candidate that ran before. candidates: the fastest first.
    """

    family: str
    problem: str
    chosen: str
    candidates: tuple[Measured, ...]

    @property
    def winner(self) -> str:
        """The candidate to run from now on."""
        took = {c.name: c.took for c in self.candidates}
        best = self.candidates[0]
        return self.chosen if took.get(self.chosen, float("inf")) <= (1 + _CLOSE) * best.took else best.name

    @property
    def loss(self) -> float:
        """What was chosen before, in parts of the fastest one's time: 1.0 where it is the fastest."""
        took = {c.name: c.took for c in self.candidates}
        return took.get(self.chosen, float("inf")) / max(1e-9, self.candidates[0].took)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**asdict(self), "winner": self.winner, "loss": self.loss}


async def measure_candidates(
    device: Device, target: Target, problems: Iterable[Noted], progress: Callable[[int, int], None] | None = None
) -> list[Tuned]:
    """Measure the candidates that could be the best for each problem that has several."""
    made: list[Tuned] = []
    wanted: Sequence[Noted] = list(dict.fromkeys(problems))
    for i, noted in enumerate(wanted):
        if progress is not None:
            progress(i, len(wanted))
        choice = noted.rank(target)
        costs = [c.cost for c in choice.others if c.cost is not None]
        hopeful = {c.name: c.cost for c in choice.others if c.cost is not None and c.cost <= _HOPELESS * min(costs)}
        took = await _alternating(list(hopeful), choice.chosen, partial(_microseconds, device, target, noted))
        found = [Measured(name, us, hopeful[name]) for name, us in took.items() if us < math.inf]
        if len(found) > 1:
            found.sort(key=lambda c: c.took)
            made.append(Tuned(choice.family, choice.problem, choice.chosen, tuple(found)))
    return made


async def _microseconds(device: Device, target: Target, noted: Noted, name: str) -> float:
    """What this candidate takes; infinite where it cannot run here: it does not win."""
    try:
        async with Lap(device, sample(noted, name, target), target.allows("read_only_constants")) as lap:
            return 1e6 * await lap.seconds(rounds=_ROUNDS)
    except (EngineError, OutOfMemory, LookupError):
        return math.inf


async def _alternating(
    names: Sequence[str], chosen: str, microseconds: Callable[[str], Awaitable[float]]
) -> dict[str, float]:
    """Each measured once; those that are near the fastest, and what was chosen, three times: their medians count."""
    took: dict[str, list[float]] = {name: [] for name in names}
    wanted = list(names)
    while wanted:
        for name in wanted:
            took[name].append(await microseconds(name))
        near = _NEAR * min(median(times) for times in took.values())
        contend = [
            name for name, times in took.items() if times[-1] < math.inf and (median(times) <= near or name == chosen)
        ]
        wanted = [name for name in contend if len(took[name]) < _TIMES] if len(contend) > 1 else []
    return {name: median(times) for name, times in took.items()}


def winners_of(tuned: Iterable[Tuned], before: Winners) -> Winners:
    """Return the fastest candidates, in addition to those known from before."""
    return Winners({**before, **{(t.family, t.problem): t.winner for t in tuned}})


@dataclass(frozen=True, slots=True)
class Tuning:
    """`InferenceSession.tune()`: prints as a table.

    Attributes:
        rates: what was measured of the device; None on a software adapter.
    """

    rates: Rates | None
    measured: tuple[Tuned, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        rates = asdict(self.rates) if self.rates is not None else None
        return {"rates": rates, "measured": [t.to_dict() for t in self.measured]}

    def __str__(self) -> str:
        rows = [
            (
                f"{t.family} {t.problem}",
                t.chosen,
                t.winner,
                f"{t.loss:.2f}",
                ", ".join(f"{c.name} {c.took:.1f}" for c in t.candidates[:4]),
            )
            for t in self.measured
        ]
        return text_table(("problem", "was", "now", "was / best", "microseconds"), rows)

    __repr__ = __str__

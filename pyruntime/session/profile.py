"""Where the time of a session goes, averaged over runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from statistics import median
from typing import Any

from pyruntime.session.markup import bar, page, table, text_table
from pyruntime.session.profiling import Timing

__all__ = ["Profile", "ProfileRow"]


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """A kernel or host operator.

    Attributes:
        ms: milliseconds a run, the mean. calls: dispatches (or evaluations) a run.
    """

    name: str
    where: str
    ms: float
    calls: float
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Profile:
    """`InferenceSession.profile`: prints as a table, shows as a bar chart in notebooks.

    Attributes:
        rows: by time, the longest first. run_ms: median wall time of an unmeasured run.
        clock: 'gpu' for GPU timestamps, 'host' for wall time of one dispatch at a time (an upper bound).
    """

    rows: tuple[ProfileRow, ...]
    runs: int
    run_ms: float
    clock: str

    @staticmethod
    def of(measured: Sequence[Sequence[Timing]], wall: Sequence[float]) -> Profile:
        """From the timings of several runs and the wall times of others, in seconds."""
        grouped: dict[tuple[str, str], list[Timing]] = defaultdict(list)
        for timings in measured:
            for t in timings:
                grouped[t.kernel or t.op_type, "gpu" if t.kernel else "host"].append(t)
        runs = max(1, len(measured))
        rows = [
            ProfileRow(
                name,
                where,
                1000 * sum(t.duration for t in found) / runs,
                len(found) / runs,
                tuple(dict.fromkeys(t.node for t in found)),
            )
            for (name, where), found in grouped.items()
        ]
        clocks = {t.clock for timings in measured for t in timings if t.kernel}
        clock = "gpu" if clocks == {"gpu"} else "host"
        return Profile(tuple(sorted(rows, key=lambda r: -r.ms)), runs, 1000 * median(wall), clock)

    @property
    def total_ms(self) -> float:
        """Sum of all rows."""
        return sum(r.ms for r in self.rows)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; times in ms."""
        return {
            "runs": self.runs,
            "run_ms": self.run_ms,
            "total_ms": self.total_ms,
            "clock": self.clock,
            "rows": [
                {"name": r.name, "where": r.where, "ms": r.ms, "calls": r.calls, "nodes": list(r.nodes)}
                for r in self.rows
            ],
        }

    def _headline(self) -> str:
        how = {"gpu": "GPU timestamps", "host": "wall time, one step at a time"}[self.clock]
        return (
            f"{self.run_ms:.3f} ms a run (median of {self.runs}); "
            f"{self.total_ms:.3f} ms in kernels and operators ({how})"
        )

    def __str__(self) -> str:
        most = max((r.ms for r in self.rows), default=0) or 1
        rows = [
            (
                r.name,
                r.where,
                r.ms,
                f"{r.ms / (self.total_ms or 1):.1%}",
                _whole(r.calls),
                "█" * round(20 * r.ms / most),
            )
            for r in self.rows
        ]
        return f"{self._headline()}\n{text_table(('kernel', 'on', 'ms', 'share', 'calls', ''), rows)}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        most = max((r.ms for r in self.rows), default=0) or 1
        rows = [
            (
                r.name,
                r.where,
                r.ms,
                f"{r.ms / (self.total_ms or 1):.1%}",
                _whole(r.calls),
                bar(r.ms / most, r.where == "host"),
            )
            for r in self.rows
        ]
        head = ("kernel", "on", "ms", "share", "calls", "time")
        return page(f"<p>{escape(self._headline())}</p>", table(head, rows, raw=(5,)))


def _whole(calls: float) -> float | int:
    return int(calls) if calls == int(calls) else calls

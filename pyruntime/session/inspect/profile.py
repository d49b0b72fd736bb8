"""Where the time of a session goes, averaged over runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pyruntime.ir import TensorType
from pyruntime.session.markup import bar, escape, page, table, text_table
from pyruntime.session.run.profiling import Timing
from pyruntime.session.tuning.ceilings import Ceilings

__all__ = ["Profile", "ProfileRow"]

_HEAD = ("kernel", "shape", "on", "ms", "share", "calls", "GFLOP", "MB", "of peak")


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """A kernel for results of one shape, or a host operator.

    Attributes:
        ms: milliseconds a run, the mean. calls: dispatches (or evaluations) a run.
        shape: of the node's first output, such as '1x128x768'; empty on the host.
        flops: floating-point operations a run, where the kernel counts them.
        nbytes: bytes of all bound tensors a run, each counted once; those that are gathered from are counted whole.
        of_peak: the time for `flops` and `nbytes` at the device's peak rates, divided by `ms`; None where unknown.
    """

    name: str
    where: str
    ms: float
    calls: float
    nodes: tuple[str, ...]
    shape: str = ""
    flops: float = 0.0
    nbytes: float = 0.0
    of_peak: float | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """`InferenceSession.profile`: prints as a table, shows as a bar chart in notebooks.

    Attributes:
        rows: by time, the longest first. run_ms: median wall time of an unmeasured run.
        clock: 'gpu' for GPU timestamps, 'host' for wall time of one dispatch at a time (an upper bound).
        ceilings: what the device reaches at best; None without a GPU.
    """

    rows: tuple[ProfileRow, ...]
    runs: int
    run_ms: float
    clock: str
    ceilings: Ceilings | None = None

    @staticmethod
    def of(measured: Sequence[Sequence[Timing]], wall: Sequence[float], ceilings: Ceilings | None = None) -> Profile:
        """Make a profile from the timings of several runs and the wall times of others, in seconds."""
        grouped: dict[tuple[str, str, str], list[Timing]] = defaultdict(list)
        for timings in measured:
            for t in timings:
                grouped[t.kernel or t.op_type, "gpu" if t.kernel else "host", _shape(t)].append(t)
        runs = max(1, len(measured))
        rows = [_row(*key, found, runs, ceilings) for key, found in grouped.items()]
        clocks = {t.clock for timings in measured for t in timings if t.kernel}
        clock = "gpu" if clocks == {"gpu"} else "host"
        return Profile(tuple(sorted(rows, key=lambda r: -r.ms)), runs, 1000 * float(np.median(wall)), clock, ceilings)

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
            "ceilings": None if self.ceilings is None else asdict(self.ceilings),
            "rows": [asdict(r) | {"nodes": list(r.nodes), "share": r.ms / (self.total_ms or 1)} for r in self.rows],
        }

    def _headline(self) -> str:
        how = {"gpu": "GPU timestamps", "host": "wall time, one step at a time"}[self.clock]
        return (
            f"{self.run_ms:.3f} ms a run (median of {self.runs}); "
            f"{self.total_ms:.3f} ms in kernels and operators ({how})"
        ) + (
            ""
            if self.ceilings is None
            else f"; peak here {self.ceilings.flops * 1e-12:.3g} TFLOP/s, {self.ceilings.bandwidth * 1e-9:.3g} GB/s"
        )

    def _cells(self, row: ProfileRow) -> tuple[object, ...]:
        peak = "" if row.of_peak is None else f"{row.of_peak:.0%}"
        share = f"{row.ms / (self.total_ms or 1):.1%}"
        gflop = f"{row.flops * 1e-9:.3g}" if row.flops else ""
        size = f"{row.nbytes * 1e-6:.3g}" if row.nbytes else ""
        return row.name, row.shape, row.where, row.ms, share, _whole(row.calls), gflop, size, peak

    def __str__(self) -> str:
        most = max((r.ms for r in self.rows), default=0) or 1
        rows = [(*self._cells(r), "█" * round(20 * r.ms / most)) for r in self.rows]
        return f"{self._headline()}\n{text_table((*_HEAD, ''), rows)}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        most = max((r.ms for r in self.rows), default=0) or 1
        rows = [(*self._cells(r), bar(r.ms / most, r.where == "host"), ", ".join(r.nodes)) for r in self.rows]
        return page(f"<p>{escape(self._headline())}</p>", table((*_HEAD, "time", "for"), rows, raw=(len(_HEAD),)))


def _shape(timing: Timing) -> str:
    first = timing.outputs[0] if timing.kernel and timing.outputs else None
    return "x".join(map(str, first.shape)) if isinstance(first, TensorType) else ""


def _row(
    name: str, where: str, shape: str, found: Sequence[Timing], runs: int, ceilings: Ceilings | None
) -> ProfileRow:
    seconds = sum(t.duration for t in found) / runs
    flops, nbytes = sum(t.flops for t in found) / runs, sum(t.nbytes for t in found) / runs
    known = ceilings is not None and where == "gpu" and seconds > 0
    peak = ceilings.fraction(flops, nbytes, seconds) if ceilings is not None and known else None
    nodes = tuple(dict.fromkeys(t.node for t in found))
    return ProfileRow(name, where, 1000 * seconds, len(found) / runs, nodes, shape, flops, nbytes, peak)


def _whole(calls: float) -> float | int:
    return int(calls) if calls == int(calls) else calls

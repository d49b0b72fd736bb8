"""Long runs, submitted in slices.

Some systems reset a GPU that works on one submit for seconds (Windows: 2 s), and a submit cannot be cancelled.
web/gpu/long_runs.js does the same in browsers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyruntime.device.base import Bound

__all__ = ["Pace", "work_of"]

LONG_S = 0.5
"""Seconds of estimated work above which a run is submitted in slices."""

SLICE_S = 0.1
"""Seconds of work in a slice. Two slices are in flight, so that the GPU never waits for the host."""

FIRST_RATE, SOFTWARE_RATE = 1e11, 1e9
"""Operations a second assumed before any measurement, of a GPU and of a software adapter: low estimates."""

GROWTH = 4
"""Largest growth of the measured rate from slice to slice: short slices are measured inaccurately."""

WORK_OF_A_BYTE = 4
"""Number of floating-point operations that reading or writing one byte counts as."""


def work_of(command: Bound) -> int:
    """Estimate the work of a dispatch, in floating-point operations."""
    return command.flops + WORK_OF_A_BYTE * sum(part.nbytes for part in command.storage)


@dataclass(slots=True)
class Pace:
    """Speed of a device in operations a second, measured on the last slices."""

    rate: float

    def is_long(self, work: Sequence[int]) -> bool:
        """Return whether a run is submitted in slices, given the operations of each dispatch."""
        return len(work) > 1 and sum(work) > LONG_S * self.rate

    def run(
        self,
        work: Sequence[int],
        submit: Callable[[int, int], Callable[[], None]],
        progress: Callable[[int, int], object] | None,
    ) -> None:
        """Submit dispatches in slices, and update the rate.

        Args:
            submit: submits dispatches [first, end); returns a function that waits for them, which may raise.
            progress: called with the operations done and the total.
        """
        first, total = 0, sum(work)
        ends = [(time.perf_counter(), 0)]
        queued: list[tuple[int, Callable[[], None]]] = []
        while first < len(work) or queued:
            if first < len(work):
                end = self._end(work, first)
                queued.append((sum(work[first:end]), submit(first, end)))
                first = end
            if len(queued) > 1 or first == len(work):
                part, wait = queued.pop(0)
                wait()
                before, done_before = ends[-2:][0]  # two slices may be seen to end at once
                now, done = time.perf_counter(), ends[-1][1] + part
                ends.append((now, done))
                self.rate = min((done - done_before) / max(now - before, 1e-4), GROWTH * self.rate)
                if progress is not None:
                    progress(done, total)
        self.rate = total / max(ends[-1][0] - ends[0][0], 1e-4)

    def _end(self, work: Sequence[int], first: int) -> int:
        """Return the end of the slice that starts at dispatch `first`; a slice has at least one dispatch."""
        end, left = first + 1, SLICE_S * self.rate - work[first]
        while end < len(work) and work[end] <= left:
            left -= work[end]
            end += 1
        return end

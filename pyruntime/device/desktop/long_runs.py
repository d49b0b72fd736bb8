"""Runs of much work are submitted in slices.

Some systems reset a GPU that takes seconds for one submit (Windows: 2 s), and what is submitted cannot be ended.
web/gpu/long_runs.js does the same in browsers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyruntime.device.base import Bound

__all__ = ["Pace", "work_of"]

LONG_S = 0.5
"""Seconds of work from which on a run is submitted in slices."""

SLICE_S = 0.1
"""Seconds of work in a slice; two of them are submitted at a time, so that the GPU does not wait."""

FIRST_RATE, SOFTWARE_RATE = 1e11, 1e9
"""Operations a second that a GPU is taken to do at first, and a software adapter: they do about as many at least."""

GROWTH = 4
"""Limit of what the measured operations a second may grow by from slice to slice: a short slice says little."""

WORK_OF_A_BYTE = 4
"""Floating-point operations that reading or writing a byte counts as."""


def work_of(command: Bound) -> int:
    """About how many operations a dispatch takes."""
    return command.flops + WORK_OF_A_BYTE * sum(part.nbytes for part in command.storage)


@dataclass(slots=True)
class Pace:
    """How fast a device works: operations a second, as the last slices or the last long run had them."""

    rate: float

    def is_long(self, work: Sequence[int]) -> bool:
        """Return whether a run of dispatches that take so many operations each is submitted in slices."""
        return len(work) > 1 and sum(work) > LONG_S * self.rate

    def run(
        self,
        work: Sequence[int],
        submit: Callable[[int, int], Callable[[], None]],
        progress: Callable[[int, int], object] | None,
    ) -> None:
        """Submit dispatches in slices.

        Args:
            submit: takes the first and the end of those of a slice; returns what waits for their end, and may raise.
            progress: gets how many operations are done, of all.
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
                before, done_before = ends[-2:][0]  # the end of one slice may be seen with that of the next
                now, done = time.perf_counter(), ends[-1][1] + part
                ends.append((now, done))
                self.rate = min((done - done_before) / max(now - before, 1e-4), GROWTH * self.rate)
                if progress is not None:
                    progress(done, total)
        self.rate = total / max(ends[-1][0] - ends[0][0], 1e-4)

    def _end(self, work: Sequence[int], first: int) -> int:
        """Return the end of the slice that begins with a dispatch: a slice has one at least."""
        end, left = first + 1, SLICE_S * self.rate - work[first]
        while end < len(work) and work[end] <= left:
            left -= work[end]
            end += 1
        return end

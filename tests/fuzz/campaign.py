"""Long runs: family after family with fresh seeds until the time is over; what fails is shrunk and collected."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.fuzz.build import Sample, samples
from tests.fuzz.families import FAMILIES

__all__ = ["campaign"]

PHASES = (Phase.generate, Phase.shrink)


def campaign(
    check: Callable[[list[Sample]], str],
    seconds: float,
    number: int,
    families: Iterable[str] = FAMILIES,
    batch: int = 1,
    examples: int = 40,
    say: Callable[[str], None] = print,
) -> tuple[int, list[str]]:
    """Check samples for `seconds`.

    Args:
        check: what is wrong with a batch of samples, or nothing.
        number: the seed of the run: the same number, the same samples.
        batch: the most samples in a batch.
        examples: batches of a family in a row.

    Returns:
        How many samples were checked, and a report of each failure; a family that failed rests.
    """
    end, checked, reports = time.monotonic() + seconds, 0, list[str]()
    resting: set[str] = set()
    for turn in itertools.count():
        for family in families:
            if family in resting or time.monotonic() > end:
                continue
            last: list[Any] = []

            @seed(1000 * number + turn)
            @settings(
                max_examples=examples,
                database=None,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                phases=PHASES,
            )
            @given(st.lists(samples(FAMILIES[family]), min_size=1, max_size=batch))
            def run(drawn: list[Sample]) -> None:
                nonlocal checked
                checked += len(drawn)
                last[:] = [drawn, ""]  # noqa: B023
                last[1] = check(drawn)  # noqa: B023
                assert not last[1]  # noqa: B023

            try:
                run()
            except Exception as error:
                resting.add(family)
                drawn, wrong = last or ([], "")
                wrong = wrong or f"{type(error).__name__}: {error}"
                reports.append(f"[{family}] {wrong}\n" + "\n".join(map(repr, drawn)))
                say(reports[-1])
        if time.monotonic() > end or resting >= set(families):
            return checked, reports
    raise AssertionError

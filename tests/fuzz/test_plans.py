"""Plans of random graphs are proved: the same ones on every run; more with `dev.py fuzz --minutes 10`."""

from __future__ import annotations

import os

import pytest

from tests.fuzz.families import PLANNED
from tests.fuzz.plans import plan_campaign

SAMPLES = 400 * int(os.environ.get("PYRUNTIME_SOAK", "1"))
"""Of each seed."""


@pytest.mark.parametrize("seed", [1, 2])
def test_plans__of_random_graphs__destroy_nothing_that_is_still_read(seed: int) -> None:
    planned, reports = plan_campaign(PLANNED, seed, float("inf"), SAMPLES, say=lambda text: None)
    assert not reports, reports[0]
    assert planned == SAMPLES

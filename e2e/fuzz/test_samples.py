"""Random samples of every family on WebGPU, the same on every run; more with `dev.py fuzz --minutes 10`."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from e2e.fuzz.browser import checker
from e2e.harness.python import BrowserPython
from tests.fuzz.build import Sample, samples
from tests.fuzz.families import FAMILIES

pytestmark = pytest.mark.unguarded

BATCH, BATCHES = 10, {"graph": 3, "reuse": 3}
"""Samples of a batch, and batches of a family where they are not 2."""


@pytest.mark.parametrize("family", FAMILIES)
def test_samples__on_the_gpu__agree_with_onnxruntime(family: str, python_in_browser: BrowserPython) -> None:
    check = checker(python_in_browser)

    @given(st.lists(samples(FAMILIES[family]), min_size=BATCH, max_size=BATCH))
    @settings(
        max_examples=BATCHES.get(family, 2),
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate,),
    )
    def run(drawn: list[Sample]) -> None:
        wrong = check(drawn)
        assert not wrong, wrong

    run()

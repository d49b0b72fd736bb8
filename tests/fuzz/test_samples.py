"""Random samples of every family on NumPy, the same on every run; more with `dev.py fuzz --minutes 10`."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from tests.fuzz.build import Sample, samples
from tests.fuzz.families import FAMILIES
from tests.fuzz.oracle import judge, native_complaint

SAMPLES = 20
"""Samples of a family."""


@pytest.mark.parametrize("family", FAMILIES)
def test_samples__on_numpy__agree_with_onnxruntime(family: str) -> None:
    @given(samples(FAMILIES[family]))
    @settings(
        max_examples=SAMPLES, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
    def run(sample: Sample) -> None:
        wrong = native_complaint(judge(sample))
        assert not wrong, wrong

    run()

"""Random samples of every family on NumPy against onnxruntime, the same on every run; more with `dev.py fuzz`."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.build import samples
from tests.fuzz.families import FAMILIES
from tests.fuzz.oracle import judge, native_complaint

EXAMPLES = 60
"""Samples of a family."""


@pytest.mark.parametrize("family", FAMILIES)
def test_samples__on_numpy__agree_with_onnxruntime(family: str) -> None:
    @given(samples(FAMILIES[family]))
    @settings(max_examples=EXAMPLES, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
    def check(sample: st.SearchStrategy) -> None:  # type: ignore[type-arg]
        assert native_complaint(judge(sample)) == ""  # type: ignore[arg-type]

    check()

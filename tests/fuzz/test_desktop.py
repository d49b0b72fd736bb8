"""Random samples of every family on the desktop's GPU, the same on every run."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from e2e.conformance import runner
from tests.fuzz.build import MOST_BYTES, Sample, samples
from tests.fuzz.families import FAMILIES
from tests.fuzz.oracle import judge

SAMPLES = 6
"""Samples of a family."""


@pytest.mark.parametrize("family", FAMILIES)
def test_samples__on_the_desktop__agree_with_onnxruntime(family: str, every_gpu: None) -> None:
    @given(samples(FAMILIES[family]))
    @settings(
        max_examples=SAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate,),
    )
    def run(sample: Sample) -> None:
        judged = judge(sample)
        if judged.nbytes <= MOST_BYTES:
            odd = len(sample.model.graph.node) % 2
            entries = {"pyruntime.disable": "software" if odd else ""}
            outcome = asyncio.run(runner.check(judged.case().message(), entries=entries))
            assert not outcome["wrong"], outcome["wrong"]

    run()

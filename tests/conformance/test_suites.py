"""ONNX's own cases on NumPy: they fail only as listed. In the browser: e2e/conformance."""

from __future__ import annotations

import pytest

from e2e.conformance.suites import SUITES, run_natively

SAMPLE = ("light_zfnet512", "light_shufflenet", "light_bvlc_alexnet")
"""The light models that run here; all nine run in the browser and by `python -m e2e.conformance`."""


@pytest.mark.parametrize("name", ["native", "native_models"])
def test_conformance__cases_on_numpy__fail_only_as_listed(name: str) -> None:
    run_natively(SUITES[name]).check()


def test_conformance__light_models_on_numpy__expected_outputs() -> None:
    results = run_natively(SUITES["native_light"], lambda case: case.name in SAMPLE)
    assert results.wrong == dict.fromkeys(SAMPLE, "")

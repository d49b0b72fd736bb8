"""Whole models in the browser: `simple`, `pytorch-operator`, `pytorch-converted` and the nine `light` models."""

from __future__ import annotations

import pytest

from e2e.conformance.suites import SUITES, Results, run_in_browser
from e2e.harness.python import BrowserPython

pytestmark = pytest.mark.unguarded  # 100 GFLOP take their time. `python -m e2e.conformance` has guards.

HEAP = "import pyodide_js\npyodide_js._module.HEAP8.length"


def test_models__default_providers__fail_only_as_listed(python_in_browser: BrowserPython) -> None:
    results = run_in_browser(SUITES["models"], python_in_browser)
    assert len(results.wrong) == 140
    results.check()


@pytest.fixture(scope="module")
def light(shared_python: BrowserPython) -> tuple[Results, int]:
    """The results, and by how many bytes Python's memory grew over them."""
    before = shared_python(HEAP)
    results = run_in_browser(SUITES["light"], shared_python, batch=1)
    return results, shared_python(HEAP) - before


def test_light_models__default_providers__expected_outputs(light: tuple[Results, int]) -> None:
    results, _ = light
    assert len(results.wrong) == 9
    results.check()


def test_light_models__every_node__runs_on_the_gpu(light: tuple[Results, int]) -> None:
    results, _ = light
    assert {name: facts["host"] for name, facts in results.facts.items() if facts["host"]} == {}


def test_light_models__memory__is_near_the_lower_bound(light: tuple[Results, int]) -> None:
    for name, facts in light[0].facts.items():
        memory = facts["memory"]
        assert memory["peak"] <= 1.05 * memory["lower_bound"], name


def test_light_models__weights_of_574_mb__stay_out_of_pythons_memory(light: tuple[Results, int]) -> None:
    assert light[1] < 64 << 20, f"Python's memory grew by {light[1]:,} bytes"

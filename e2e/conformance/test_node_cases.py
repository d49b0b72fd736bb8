"""ONNX's 1,884 node tests in the browser, through the built site: on the GPU alone, and where that is refused with
default providers."""

from __future__ import annotations

import pytest

from e2e.conformance.cases import plain_tensor_tests
from e2e.conformance.suites import SUITES, Results, run_in_browser
from e2e.harness.python import BrowserPython

PLAIN = plain_tensor_tests()


@pytest.fixture(scope="module")
def default(shared_python: BrowserPython) -> Results:
    return run_in_browser(SUITES["default"], shared_python)


@pytest.fixture(scope="module")
def without_fallback(default: Results) -> Results:
    return default.without_fallback(SUITES["without_fallback"], PLAIN)


def test_node_cases__default_providers__fail_only_as_listed(default: Results) -> None:
    assert len(default.wrong) == 1884
    default.check()


def test_node_cases__without_fallback__fail_only_as_listed(without_fallback: Results) -> None:
    assert len(without_fallback.wrong) == len(PLAIN) == 1622
    without_fallback.check()


def test_node_cases__plain_tensors__at_least_1600_pass(default: Results) -> None:
    assert len(default.passed & PLAIN.keys()) >= 1600


def test_node_cases__plain_tensors_without_fallback__at_least_1250_pass(without_fallback: Results) -> None:
    assert len(without_fallback.passed) >= 1250


def test_node_cases__other_types__at_least_240_of_262_pass(default: Results) -> None:
    others = default.wrong.keys() - PLAIN.keys()
    assert len(others) == 262
    assert len(default.passed & others) >= 240


def test_node_cases__that_onnxruntime_web_passes__pass_here(default: Results, without_fallback: Results) -> None:
    lost = [name for name, (theirs, _) in PLAIN.items() if theirs and name not in default.passed]
    lost_gpu = [name for name, (_, theirs) in PLAIN.items() if theirs and name not in without_fallback.passed]
    assert (lost, lost_gpu) == ([], [])

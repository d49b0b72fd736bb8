"""ONNX's own cases on the desktop's GPU, through wgpu and Dawn on software adapters: they fail only as listed."""

from __future__ import annotations

import zlib

import pytest

from e2e.conformance.cases import plain_tensor_tests
from e2e.conformance.known import known_failures
from e2e.conformance.suites import SUITES, run_natively
from tests.desktop import with_bindings
from tests.harness import node_tests

PARTS = 8
"""Of the node tests, so that a run of some tests has some of them."""

SAMPLE = ("light_zfnet512", "light_shufflenet")


@pytest.mark.parametrize("part", range(PARTS))
def test_node_cases__on_the_desktop__fail_only_as_listed(part: int, every_gpu: None) -> None:
    results = run_natively(SUITES["desktop"], lambda case: zlib.crc32(case.name.encode()) % PARTS == part)
    assert len(results.wrong) > 200
    results.check(part=True)


def test_node_cases__bindings_of_512_bytes__fail_only_as_listed(desktop_gpu: None) -> None:
    with with_bindings(512):
        results = run_natively(SUITES["desktop"], lambda case: zlib.crc32(case.name.encode()) % PARTS == 0)
    results.check(part=True)


def test_node_cases__known_failures__leave_1606_of_1622_right() -> None:
    known, plain = known_failures("desktop"), plain_tensor_tests()
    assert known.keys() <= node_tests().keys()
    assert len(plain) == 1622
    assert len(plain.keys() - known.keys()) >= 1606


def test_models__on_the_desktop__fail_only_as_listed(every_gpu: None) -> None:
    results = run_natively(SUITES["desktop_models"])
    assert len(results.wrong) == 140
    results.check()


def test_light_models__on_the_desktop__expected_outputs(desktop_gpu: None) -> None:
    results = run_natively(SUITES["light"], lambda case: case.name in SAMPLE)
    assert results.wrong == dict.fromkeys(SAMPLE, "")

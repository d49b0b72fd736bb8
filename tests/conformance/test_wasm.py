"""ONNX's own cases as WebAssembly: they fail only as listed for the desktop's GPU, which has the same kernels."""

from __future__ import annotations

import zlib

import pytest

from e2e.conformance.suites import SUITES, run_natively
from tests.wasm import on_wasm

PARTS = 8
"""Of the node tests, so that a run of some tests has some of them."""

SAMPLE = ("light_shufflenet",)


@pytest.mark.parametrize("part", range(PARTS))
def test_node_cases__as_webassembly__fail_only_as_listed(part: int) -> None:
    with on_wasm():
        results = run_natively(SUITES["desktop"], lambda case: zlib.crc32(case.name.encode()) % PARTS == part)
    assert len(results.wrong) > 200
    results.check(part=True)


def test_models__as_webassembly__fail_only_as_listed() -> None:
    with on_wasm():
        results = run_natively(SUITES["desktop_models"])
    assert len(results.wrong) == 140
    results.check()


def test_light_models__as_webassembly__expected_outputs() -> None:
    with on_wasm():
        results = run_natively(SUITES["light"], lambda case: case.name in SAMPLE)
    assert results.wrong == dict.fromkeys(SAMPLE, "")

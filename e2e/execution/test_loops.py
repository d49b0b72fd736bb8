"""Scan and Loop of known trips on WebGPU: several lengths in one session against onnxruntime; replay without Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest

from e2e.harness.python import BrowserPython
from tests.loop_models import LOOPS
from tests.models import text_model
from tests.passes.test_linear_attention import FORMS, feeds

RUN = """
import os
os.environ["PYRUNTIME_VERIFY"] = "1"
import pyruntime as ort
session = await ort.InferenceSession.create(model)
try:
    outputs = [await session.run_async(None, feeds) for feeds in fed]
    places = sorted({node.placement for node in session.explain().nodes})
    profiled = len(session.profile(fed[-1]).rows) if profile else 0
finally:
    session.release()
[outputs, places, profiled]
"""


def check(run: BrowserPython, text: str, fed: list[dict[str, Any]], profile: bool = False) -> None:
    """Compare runs, one after another, with onnxruntime's."""
    model = text_model(text).SerializeToString()
    outputs, places, profiled = run(RUN, model=model, fed=fed, profile=profile)
    oracle = onnxruntime.InferenceSession(model)
    for given, got in zip(fed, outputs, strict=True):
        for mine, theirs in zip(got, oracle.run(None, given), strict=True):
            assert np.asarray(mine).shape == theirs.shape
            tolerance = 2e-3 if theirs.dtype == np.float16 else 1e-5
            np.testing.assert_allclose(np.asarray(mine, theirs.dtype), theirs, tolerance, tolerance)
    assert "host" not in places
    assert bool(profiled) == profile


@pytest.mark.parametrize("name", LOOPS)
def test_loops__of_several_lengths__as_onnxruntime_without_a_host_step(
    name: str, python_in_browser: BrowserPython
) -> None:
    text, made = LOOPS[name]
    check(python_in_browser, text, [made(n) for n in (4, 4, 4, 9, 7, 1, 4)], name == "nested")


def test_loop__that_is_linear_attention__as_onnxruntime(python_in_browser: BrowserPython) -> None:
    text = FORMS["matrix products"]
    check(python_in_browser, text, [feeds(text, n) for n in (4, 9, 40)])

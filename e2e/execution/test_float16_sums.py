"""Sums of float16 beyond 65504 that are scaled afterwards, on the GPU: finite, and rounded once."""

from __future__ import annotations

import numpy as np
import pytest

from e2e.harness.python import BrowserPython
from pyruntime.ir import Array
from tests.half_models import SCALED, N, norm, norm_feed, norm_in_float64, sums_model

RUN = """
import pyruntime as ort
session = await ort.InferenceSession.create(model)
try:
    (y,) = await session.run_async(None, {"x": x})
    host = [n["op_type"] for n in session.explain().to_dict()["nodes"] if n["placement"] == "host"]
finally:
    session.release()
[y, host]
"""


def on_gpu(python: BrowserPython, model: bytes, x: Array) -> Array:
    y, host = python(RUN, model=model, x=x)
    assert y.dtype == np.float16 and not host
    return np.asarray(y, np.float64)


@pytest.mark.parametrize("name", SCALED)
def test_sums_beyond_float16__that_are_scaled__are_finite(name: str, python_in_browser: BrowserPython) -> None:
    nodes, number, wanted = SCALED[name]
    x = np.full((3, N), number, np.float16)
    y = on_gpu(python_in_browser, sums_model(nodes, x.shape).SerializeToString(), x)
    np.testing.assert_allclose(y, wanted, rtol=2e-3)


def test_variance_of_squares__of_float16__is_computed_in_float32(python_in_browser: BrowserPython) -> None:
    x = norm_feed()
    y = on_gpu(python_in_browser, sums_model(norm(), x.shape).SerializeToString(), x)
    np.testing.assert_allclose(y, norm_in_float64(x), atol=0.02)

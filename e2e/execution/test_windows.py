"""Attention in windows on WebGPU: sessions whose norms move rows, of one and of several pictures, against onnxruntime.

Tolerances: float32 of two layers, 1e-3 of values about 1; float16, 5e-2.
"""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

from e2e.harness.python import BrowserPython
from tests.window_models import WindowModel, Windows

RUN = """
import os
os.environ["PYRUNTIME_VERIFY"] = "1"
import pyruntime as ort
options = ort.SessionOptions()
options.add_session_config_entry("pyruntime.disable", "software")
session = await ort.InferenceSession.create(model, options)
try:
    outputs = [await session.run_async(None, feeds) for feeds in fed]
finally:
    session.release()
outputs
"""


@pytest.mark.parametrize(
    "form",
    [
        Windows(open=True),
        Windows(open=True, padded=2, swapped=True, rows=3, both=True),
        Windows(batch=2, rows=1, dtype=np.float16),
    ],
)
def test_windows__in_a_session__compute_what_onnxruntime_does(form: Windows, unguarded_python: BrowserPython) -> None:
    made = WindowModel(form, 2, True)
    model = made.model()
    fed = [made.feeds(batch) for batch in ((1, 2, 3, 1) if form.open else (form.batch,))]
    outputs = unguarded_python(RUN, model=model, fed=fed)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    tolerance = (1e-3, 1e-3) if form.dtype is np.float32 else (5e-2, 5e-2)
    for (mine,), feeds in zip(outputs, fed, strict=True):
        (theirs,) = session.run(None, feeds)
        np.testing.assert_allclose(mine.astype(np.float32), theirs.astype(np.float32), *tolerance)

"""A sample of the zoo in the browser: two sizes, each run twice with equal bits, against onnxruntime."""

from __future__ import annotations

import pytest

from e2e.harness.python import BrowserPython
from tools.zoo import sample
from tools.zoo.browser import compared
from tools.zoo.check import reference


@pytest.mark.parametrize("name", sample.names())
def test_sample__each_size__agrees_with_onnxruntime(name: str, python_in_browser: BrowserPython) -> None:
    model, feeds = sample.load(name)
    runs, wanted, outputs = reference(model, feeds)
    found = compared(python_in_browser, model, runs, wanted, outputs)
    assert not found["browser"]
    assert not found["browser_host"]

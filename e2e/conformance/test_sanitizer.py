"""The sanitizer on real memory: right plans pass it, a plan that overwrites what is still read is named by dispatch."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from e2e.conformance.suites import SUITES, run_in_browser
from e2e.harness.python import BrowserPython, BrowserPythonError

SANITIZE = {"pyruntime.sanitize": "1"}

RUN = """
    import os
    verify = os.environ.pop("PYRUNTIME_VERIFY", "0")  # what plans are proved by would name the mistake first
    import pyruntime as ort
    from pyruntime.compiler.lifetimes import Lifetimes

    options = ort.SessionOptions()
    options.add_session_config_entry("pyruntime.sanitize", "1")
    options.add_session_config_entry("pyruntime.disable", disable)

    class Everything(tuple):
        "In the rule of `share_in_place`: every operand is listed."
        def __contains__(self, pair):
            return True

    from dataclasses import replace
    rule = Lifetimes.share_in_place
    def careless(self, steps):
        return rule(self, [
            replace(s, dispatch=replace(s.dispatch, inplace=Everything(s.dispatch.inplace))) for s in steps
        ])
    if broken:
        Lifetimes.share_in_place = careless
    try:
        session = await ort.InferenceSession.create(model, options)
        (y,) = await session.run_async(None, {"x": x})
        session.release()
    finally:
        Lifetimes.share_in_place = rule
        os.environ["PYRUNTIME_VERIFY"] = verify
    y
"""


def residual_model() -> bytes:
    """y = relu(conv(t) + t), t = tanh(x)."""
    w = np.random.default_rng(5).normal(size=(8, 8, 3, 3)).astype(np.float32) / 8
    nodes = [
        helper.make_node("Tanh", ["x"], ["t"]),
        helper.make_node("Conv", ["t", "w"], ["c"], "convolution", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c", "t"], ["s"]),
        helper.make_node("Relu", ["s"], ["y"]),
    ]
    shape = [1, 8, 45, 45]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in ("x", "y")]
    graph = helper.make_graph(nodes, "residual", ends[:1], ends[1:], [numpy_helper.from_array(w, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return bytes(model.SerializeToString())


def run(python: BrowserPython, disable: str, broken: bool) -> object:
    x = np.random.default_rng(6).normal(size=(1, 8, 45, 45)).astype(np.float32)
    return python(RUN, model=residual_model(), x=x, disable=disable, broken=broken)


@pytest.mark.parametrize("disable", ["", "software"])
def test_sanitizer__residual_of_the_operators_own_input__passes(python_in_browser: BrowserPython, disable: str) -> None:
    run(python_in_browser, disable, broken=False)


@pytest.mark.parametrize("disable", ["", "software"])
def test_sanitizer__operand_overwritten_while_it_is_read__names_the_dispatch(
    python_in_browser: BrowserPython, disable: str
) -> None:
    with pytest.raises(BrowserPythonError, match=r"dispatch 1, kernel conv_\w+ of node 'convolution' \(Conv \+ Add"):
        run(python_in_browser, disable, broken=True)


def test_models__sanitized__give_the_expected_outputs(python_in_browser: BrowserPython) -> None:
    results = run_in_browser(SUITES["models"], python_in_browser, entries=SANITIZE)
    assert len(results.wrong) == 140
    results.check()

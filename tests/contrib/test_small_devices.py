"""Random com.microsoft nodes in sessions on devices with the limits of phones, and with smaller bindings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import pyruntime
from tests.contrib.case import Case, compare, draws, expected
from tests.contrib.samples import each
from tests.contrib.test_cases import SEED
from tests.desktop import on_desktop, on_target, with_bindings
from tests.harness import carrier
from tests.oracle import node_of
from tests.sampling import ALL

NUMBERS = range(30, 32)
"""Samples of an operator that no other test has: one whose inputs are fed, and one with weights."""

BINDING = 2048
"""Bytes of a binding of the smallest device, which most tensors exceed; buffers have twice as many."""


DEVICES = ["phone", "small bindings", *(["default", "compatibility"] if ALL else [])]


@pytest.fixture(scope="module", params=DEVICES)
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param != "small bindings":
        with on_target(request.param):
            yield request.param
    else:
        with on_desktop(), with_bindings(BINDING):
            yield request.param


def model_of(case: Case, constant: bool) -> tuple[bytes, dict[str, Any]]:
    """A model of one node, and its feeds; `constant`: all inputs but the first are weights."""
    node = node_of(case.op_type, case.inputs, case.outputs, case.domain, **case.attributes)
    named = {f"x{number}": x for number, x in enumerate(case.inputs) if x is not None}
    feeds = {name: x for name, x in named.items() if name == "x0" or not constant}
    weights = [numpy_helper.from_array(np.asarray(x), name) for name, x in named.items() if name not in feeds]
    kinds = {name: helper.np_dtype_to_tensor_dtype(x.dtype) for name, x in feeds.items()}
    inputs = [helper.make_tensor_value_info(name, kinds[name], x.shape) for name, x in feeds.items()]
    outputs = [onnx.ValueInfoProto(name=f"y{number}") for number in range(case.outputs)]
    graph = helper.make_graph([node], "one", inputs, outputs, weights)
    opsets = [helper.make_opsetid("", case.opset), helper.make_opsetid("com.microsoft", 1)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return bytes(made.SerializeToString()), feeds


def check(case: Case, constant: bool, device: str) -> None:
    """Compare a session with the oracle; on the host there is what has no kernel, or exceeds a buffer."""
    model, feeds = model_of(case, constant)
    session = pyruntime.InferenceSession(model)
    outputs = [carrier(y)[1] for y in session.run(None, feeds)]
    hosted = [node.reason for node in session.explain().nodes if node.placement == "host"]
    session.release()
    compare(case, outputs, expected(case))
    if device == "small bindings":
        hosted = [why for why in hosted if "device's buffer limit" not in why and "are in parts; the device" not in why]
    assert not hosted or case.host, hosted


@pytest.mark.parametrize("op_type", draws())
def test_samples__on_small_devices__agree_with_onnxruntime_on_the_gpu_alone(op_type: str, device: str) -> None:
    each(op_type, SEED, NUMBERS, lambda case, number: check(case, number % 2 == 1, device))

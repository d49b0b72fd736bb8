"""Generated kernels without bounds checks: with hostile indices they give the bits that they give with checks."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import pyruntime as ort
from pyruntime.device.desktop.device import CHECKS

RANDOM = np.random.default_rng(0)
X = RANDOM.random((6, 8), np.float32)
IMAGE = RANDOM.random((1, 2, 6, 8), np.float32)
LARGE = np.array([2**31 - 1, -(2**31), 10**9, -(10**9), 5, 6, -7, 2**40, -(2**40), 123456])
WILD = np.array([1e30, -1e30, np.nan, np.inf, 0.5, -3.0], np.float32)
CACHE, ROWS = RANDOM.random((2, 3, 8, 4), np.float32), RANDOM.random((2, 3, 2, 4), np.float32)
STARTS = np.array([10**9, -5])


def indices(*shape: int) -> Any:
    return RANDOM.choice(LARGE, shape)


CASES: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "gather": ("Gather", [X, indices(5, 3)], {"axis": 1}),
    "gather rows": ("Gather", [X, indices(5).clip(-(2**31), 2**31 - 1).astype(np.int32)], {"axis": 0}),
    "elements": ("GatherElements", [X, indices(6, 8)], {"axis": 1}),
    "points": ("GatherND", [X, indices(5, 2)], {}),
    "scatter": ("ScatterElements", [X, indices(6, 8), X], {"axis": 1}),
    "scatter sums": ("ScatterElements", [X, indices(6, 8), X], {"axis": 0, "reduction": "add"}),
    "scatter points": ("ScatterND", [X, indices(5, 2), X[0, :5].copy()], {}),
    "scatter rows": ("ScatterND", [X, indices(5, 1), X[:5].copy()], {"reduction": "add"}),
    "one-hot": ("OneHot", [indices(5), np.array([7]), np.array([0, 1], np.float32)], {}),
    "cache": ("TensorScatter", [CACHE, ROWS, STARTS], {"mode": "linear"}),
    "circular cache": ("TensorScatter", [CACHE, ROWS, STARTS], {"mode": "circular"}),
    "grid": ("GridSample", [IMAGE, RANDOM.choice(WILD, (1, 4, 4, 2))], {"padding_mode": "reflection"}),
    "regions": (
        "RoiAlign",
        [IMAGE, RANDOM.choice(WILD, (3, 4)), np.array([10**9, -3, 0])],
        {"output_height": 2, "output_width": 2, "sampling_ratio": 3},
    ),
    "unpool": ("MaxUnpool", [X[:2, :2].reshape(1, 1, 2, 2).copy(), indices(1, 1, 2, 2)], {"kernel_shape": [2, 2]}),
    "loss": ("NegativeLogLikelihoodLoss", [X, indices(6)], {"reduction": "none"}),
    "reverse": ("ReverseSequence", [X, indices(8)], {"batch_axis": 1, "time_axis": 0}),
    "deformed": (
        "DeformConv",
        [IMAGE, RANDOM.random((2, 2, 3, 3), np.float32), RANDOM.choice(WILD, (1, 18, 4, 6))],
        {"kernel_shape": [3, 3]},
    ),
}


def model(op_type: str, inputs: list[Any], attributes: dict[str, Any]) -> bytes:
    """The operator on `inputs`; it reads integers that the GPU has made of these, since the host would refuse them."""
    names = [f"x{i}" for i in range(len(inputs))]
    wild = {n: f"{n}.same" for n, x in zip(names, inputs, strict=True) if x.dtype.kind == "i" and x.size > 1}
    graph = helper.make_graph(
        [
            *(helper.make_node("Max", [name, name], [same]) for name, same in wild.items()),
            helper.make_node(op_type, [wild.get(n, n) for n in names], ["y"], **attributes),
        ],
        "g",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for n, x in zip(names, inputs, strict=True)
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    opsets = [helper.make_opsetid("", 24)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


@pytest.mark.parametrize("kernels", ["gpu", "software"])
@pytest.mark.parametrize("name", CASES)
def test_hostile_indices__without_checks__same_bits_as_with_them(
    name: str, kernels: str, desktop_gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    op_type, inputs, attributes = CASES[name]
    options = ort.SessionOptions()
    options.add_session_config_entry("pyruntime.disable", "software" if kernels == "gpu" else "")
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    found = []
    for checks, choice in (("0", {}), ("1", {"power_preference": "low-power"})):
        monkeypatch.setenv(CHECKS, checks)  # of the device that `choice` opens
        session = ort.InferenceSession(
            model(op_type, inputs, attributes), options, [("WebGpuExecutionProvider", choice)]
        )
        (y,) = session.run(None, {f"x{i}": x for i, x in enumerate(inputs)})
        found.append(y.tobytes())
    assert found[0] == found[1]
    assert all(re.search("custom kernel", k.wgsl) is None for k in session.explain().kernels)

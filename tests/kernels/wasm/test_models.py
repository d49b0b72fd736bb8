"""Operators with kernels for WebAssembly alone, compared with onnxruntime."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import pyruntime
from pyruntime.ir import Array
from tests.wasm import on_wasm

FLOAT = TensorProto.FLOAT


@pytest.fixture(scope="module", autouse=True)
def wasm() -> Iterator[None]:
    with on_wasm():
        yield


def random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(np.float32)


def check(nodes: list[Any], feeds: Mapping[str, Array], weights: Mapping[str, Array], kernel: str, rank: int) -> None:
    """Compare outputs `y`, and see that a kernel of this name ran and that no node was on the host."""
    inputs = [helper.make_tensor_value_info(n, FLOAT, v.shape) for n, v in feeds.items()]
    constants = [numpy_helper.from_array(v, n) for n, v in weights.items()]
    y = helper.make_tensor_value_info("y", FLOAT, [None] * rank)
    model = helper.make_model(
        helper.make_graph(nodes, "g", inputs, [y], constants), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    raw = onnx.helper.make_model(model.graph, opset_imports=model.opset_import, ir_version=8).SerializeToString()
    (expected,) = onnxruntime.InferenceSession(raw).run(["y"], dict(feeds))
    session = pyruntime.InferenceSession(raw)
    for _ in range(2):
        (found,) = session.run(["y"], dict(feeds))
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)
    nodes_run = session.summary()["nodes"]
    assert not [n for n in nodes_run if n["placement"] == "host"]
    names = [name for n in nodes_run for name in n["kernels"]]
    assert any(name.startswith(kernel) for name in names), names


CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "3 x 3": ((1, 16, 9, 11), (24, 16, 3, 3), {"pads": [1, 1, 1, 1]}),
    "rows of output channels that are not whole": ((2, 9, 7, 5), (13, 9, 3, 2), {"pads": [1, 0, 2, 1]}),
    "few channels, along the width": ((1, 1, 6, 40), (8, 1, 2, 16), {"strides": [1, 3]}),
    "along the width, past both edges": ((1, 2, 21), (5, 2, 9), {"pads": [8, 8]}),
    "one axis, stride 2": ((1, 12, 17), (6, 12, 3), {"strides": [2], "pads": [1, 1]}),
    "dilations": ((1, 10, 12, 13), (16, 10, 3, 3), {"dilations": [2, 3], "pads": [2, 3, 2, 3]}),
    "groups": ((1, 24, 8, 9), (32, 6, 3, 3), {"group": 4, "pads": [1, 1, 1, 1]}),
    "one pixel": ((1, 40, 3), (9, 40, 3), {}),
    "three axes": ((1, 9, 4, 5, 6), (8, 9, 2, 3, 3), {"pads": [1, 1, 1, 0, 1, 1], "strides": [1, 2, 1]}),
    "pointwise": ((2, 20, 5, 6), (12, 20, 1, 1), {}),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("bias", [False, True])
def test_conv__weights_in_panels__onnxruntimes_answer(name: str, bias: bool) -> None:
    shape, weights, attributes = CONVOLUTIONS[name]
    constants = {"w": random(*weights), **({"b": random(weights[0])} if bias else {})}
    conv = helper.make_node("Conv", ["x", *constants], ["c"], **attributes)
    nodes = [conv, helper.make_node("Clip", ["c", "low"], ["y"])]
    check(nodes, {"x": random(*shape)}, {**constants, "low": np.array(-0.5, np.float32)}, "conv_panels", len(shape))


@pytest.mark.parametrize("shape", [(1, 64, 10), (2, 13, 3), (3, 16, 1), (5, 7, 9), (1, 257, 64), (4, 2, 5)])
@pytest.mark.parametrize("late", [False, True])
def test_gemm__transposed_weights__onnxruntimes_answer(shape: tuple[int, int, int], late: bool) -> None:
    m, k, n = shape
    gemm = helper.make_node("Gemm", ["x", "w", "b"], ["g"], transB=1)
    nodes = [gemm, helper.make_node("Sigmoid" if late else "Identity", ["g"], ["y"])]
    check(nodes, {"x": random(m, k)}, {"w": random(n, k), "b": random(n)}, "matmul_serial_nt", 2)


@pytest.mark.parametrize("shape", [(1, 5, 4), (2, 7, 13), (3, 6, 20), (7, 33, 8), (1, 6, 3), (4, 9, 257)])
def test_matmul__rows_of_any_length__onnxruntimes_answer(shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    check(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        {"x": random(2, m, k)},
        {"w": random(k, n)},
        "matmul_serial_nn",
        3,
    )


@pytest.mark.parametrize("hidden", [6, 8])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize(("kind", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_recurrent__with_initial_state__onnxruntimes_answer(kind: str, gates: int, direction: str, hidden: int) -> None:
    count = 2 if direction == "bidirectional" else 1
    weights = {
        "w": random(count, gates * hidden, 5) / 2,
        "r": random(count, gates * hidden, hidden) / 2,
        "b": random(count, 2 * gates * hidden) / 2,
    }
    more: dict[str, Any] = {"linear_before_reset": 1} if kind == "GRU" else {}
    node = helper.make_node(kind, ["x", "w", "r", "b", "", "h"], ["y"], hidden_size=hidden, direction=direction, **more)
    feeds = {"x": random(4, 3, 5), "h": random(count, 3, hidden)}
    check([node], feeds, weights, f"recurrent_{kind.lower()}_loop", 4)

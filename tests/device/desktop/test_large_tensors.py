"""Activations, inputs and outputs larger than a binding: they are bound in parts, and nodes stay on the GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import pyruntime as ort
from pyruntime.target import Limits
from tests.desktop import on_target, with_bindings
from tests.models import text_model

LIMIT = 4096
"""Bytes of a binding; buffers have twice as many."""

RNG = np.random.default_rng(56)


def numbers(*shape: int, dtype: Any = np.float32) -> Any:
    return RNG.standard_normal(shape).astype(dtype)


def integers(*shape: int, most: int = 100, dtype: Any = np.int64) -> Any:
    return RNG.integers(0, most, shape).astype(dtype)


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "Relu": ("(float[2, 900] x) => (float[2, 900] y) {y = Relu(x)}", {"x": numbers(2, 900)}),
    "unary chain": ("(float[1801] x) => (float[1801] y) {a = Exp(x) b = Sqrt(a) y = Neg(b)}", {"x": numbers(1801)}),
    "float16": ("(float16[3001] x) => (float16[3001] y) {y = Relu(x)}", {"x": numbers(3001, dtype=np.float16)}),
    "int8 to float16": (
        "(int8[3, 1201] x) => (float16[3, 1201] y) {y = Cast<to=10>(x)}",
        {"x": integers(3, 1201, dtype=np.int8)},
    ),
    "int64": ("(int64[701] x) => (int64[701] y) {y = Abs(x)}", {"x": integers(701) - 50}),
    "bool": (
        "(float[1801] x) => (bool[1801] y) {z = Constant<value_float=0.5>() y = Greater(x, z)}",
        {"x": numbers(1801)},
    ),
    "broadcasting": (
        "(float[3, 500] x, float[500] z, float[3, 1] w) => (float[3, 500] y) {a = Mul(x, z) y = Add(w, a)}",
        {"x": numbers(3, 500), "z": numbers(500), "w": numbers(3, 1)},
    ),
    "sums of four": (
        "(float[1800] a, float[1800] b, float[1800] c, float[1800] d) => (float[1800] y) {y = Sum(a, b, c, d)}",
        {name: numbers(1800) for name in "abcd"},
    ),
    "chain of five": (
        "(float[1800] a, float[1800] b, float[1800] c, float[1800] d, float[1800] e) => (float[1800] y)"
        " {p = Mul(a, b) q = Add(p, c) r = Sub(q, d) y = Max(r, e)}",
        {name: numbers(1800) for name in "abcde"},
    ),
    "Where": (
        "(bool[1500] c, float[1500] a, float[1500] b) => (float[1500] y) {y = Where(c, a, b)}",
        {"c": integers(1500, most=2, dtype=bool), "a": numbers(1500), "b": numbers(1500)},
    ),
    "Clip": (
        "(float[1500] x, float l, float h) => (float[1500] y) {y = Clip(x, l, h)}",
        {"x": numbers(1500), "l": np.array(-0.5, np.float32), "h": np.array(0.5, np.float32)},
    ),
    "Transpose": ("(float[40, 45] x) => (float[45, 40] y) {y = Transpose(x)}", {"x": numbers(40, 45)}),
    "Transpose of uint8": (
        "(uint8[70, 111] x) => (uint8[111, 70] y) {y = Transpose(x)}",
        {"x": integers(70, 111, most=256, dtype=np.uint8)},
    ),
    "Reshape": (
        "(float[40, 45] x) => (float[1800] y)"
        " {s = Constant<value_ints=[-1]>() a = Reshape(x, s) y = Sigmoid(a)}",
        {"x": numbers(40, 45)},
    ),
    "Concat": (
        "(float[3, 300] a, float[3, 200] b) => (float[3, 500] y) {y = Concat<axis=1>(a, b)}",
        {"a": numbers(3, 300), "b": numbers(3, 200)},
    ),
    "Concat of nine": (
        "(float[190] a, float[190] b, float[190] c) => (float[1710] y) {y = Concat<axis=0>(a, b, c, a, b, c, c, b, a)}",
        {name: numbers(190) for name in "abc"},
    ),
    "Split": (
        "(float[900, 2] x) => (float[900, 1] a, float[900, 1] b) {a, b = Split<axis=1, num_outputs=2>(x)}",
        {"x": numbers(900, 2)},
    ),
    "Slice": (
        "(float[60, 30] x) => (float[n, m] y)"
        " {f = Constant<value_ints=[2, 1]>() e = Constant<value_ints=[60, 30]>() y = Slice(x, f, e)}",
        {"x": numbers(60, 30)},
    ),
    "Pad": (
        "(float[30, 40] x) => (float[n, m] y) {p = Constant<value_ints=[1, 2, 3, 4]>() y = Pad(x, p)}",
        {"x": numbers(30, 40)},
    ),
    "Expand": (
        "(float[40, 1] x) => (float[40, 45] y) {s = Constant<value_ints=[40, 45]>() y = Expand(x, s)}",
        {"x": numbers(40, 1)},
    ),
    "Tile": (
        "(float[400] x) => (float[n] y) {r = Constant<value_ints=[4]>() y = Tile(x, r)}",
        {"x": numbers(400)},
    ),
    "Gather": (
        "(float[90, 20] x, int64[70] i) => (float[70, 20] y) {y = Gather(x, i)}",
        {"x": numbers(90, 20), "i": integers(70, most=90)},
    ),
    "MatMul": (
        "(float[60, 30] a, float[30, 28] b) => (float[60, 28] y) {y = MatMul(a, b)}",
        {"a": numbers(60, 30), "b": numbers(30, 28)},
    ),
    "MatMul of two large ones": (
        "(float[30, 60] a, float[60, 30] b) => (float[30, 30] y) {y = MatMul(a, b)}",
        {"a": numbers(30, 60), "b": numbers(60, 30)},
    ),
    "MatMul of stacks": (
        "(float[5, 16, 20] a, float[5, 20, 16] b) => (float[5, 16, 16] y) {y = MatMul(a, b)}",
        {"a": numbers(5, 16, 20), "b": numbers(5, 20, 16)},
    ),
    "Gemm and Relu": (
        "(float[60, 30] a, float[28, 30] b, float[28] c) => (float[60, 28] y)"
        " {g = Gemm<transB=1>(a, b, c) y = Relu(g)}",
        {"a": numbers(60, 30), "b": numbers(28, 30), "c": numbers(28)},
    ),
    "Softmax": ("(float[4, 450] x) => (float[4, 450] y) {y = Softmax<axis=-1>(x)}", {"x": numbers(4, 450)}),
    "Softmax of columns": ("(float[45, 40] x) => (float[45, 40] y) {y = Softmax<axis=0>(x)}", {"x": numbers(45, 40)}),
    "LayerNormalization": (
        "(float[30, 60] x, float[60] s, float[60] b) => (float[30, 60] y)"
        " {y = LayerNormalization<axis=-1>(x, s, b)}",
        {"x": numbers(30, 60), "s": numbers(60), "b": numbers(60)},
    ),
    "ReduceMean": (
        "(float[30, 60] x) => (float[30, 1] y) {a = Constant<value_ints=[1]>() y = ReduceMean(x, a)}",
        {"x": numbers(30, 60)},
    ),
    "ArgMax": ("(float[1801] x) => (int64[1] y) {y = ArgMax(x)}", {"x": numbers(1801)}),
    "CumSum": (
        "(float[9, 200] x) => (float[9, 200] y) {a = Constant<value_int=1>() y = CumSum(x, a)}",
        {"x": numbers(9, 200)},
    ),
    "Conv": (
        "(float[1, 4, 20, 21] x, float[4, 4, 3, 3] w, float[4] b) => (float[1, 4, 20, 21] y)"
        " {y = Conv<pads=[1, 1, 1, 1]>(x, w, b)}",
        {"x": numbers(1, 4, 20, 21), "w": numbers(4, 4, 3, 3), "b": numbers(4)},
    ),
    "depthwise Conv": (
        "(float[1, 6, 16, 16] x, float[6, 1, 3, 3] w) => (float[1, 6, 16, 16] y)"
        " {y = Conv<group=6, pads=[1, 1, 1, 1]>(x, w)}",
        {"x": numbers(1, 6, 16, 16), "w": numbers(6, 1, 3, 3)},
    ),
    "MaxPool": (
        "(float[1, 4, 20, 20] x) => (float[1, 4, 19, 19] y) {y = MaxPool<kernel_shape=[2, 2]>(x)}",
        {"x": numbers(1, 4, 20, 20)},
    ),
    "ConvTranspose": (
        "(float[1, 4, 10, 10] x, float[4, 4, 2, 2] w) => (float[1, 4, 20, 20] y)"
        " {y = ConvTranspose<strides=[2, 2]>(x, w)}",
        {"x": numbers(1, 4, 10, 10), "w": numbers(4, 4, 2, 2)},
    ),
    "Resize": (
        "(float[1, 4, 10, 10] x) => (float[1, 4, 20, 20] y)"
        " {s = Constant<value_floats=[1.0, 1.0, 2.0, 2.0]>()"
        " y = Resize<mode=\"linear\">(x, , s)}",
        {"x": numbers(1, 4, 10, 10)},
    ),
    "Conv with a large filter": (
        "(float[1, 32, 8, 8] x, float[32, 32, 1, 1] w) => (float[1, 32, 8, 8] y) {y = Conv(x, w)}",
        {"x": numbers(1, 32, 8, 8), "w": numbers(32, 32, 1, 1)},
    ),
    "attention of many queries": (
        "(float[1, 4, 36, 8] q, float[1, 4, 36, 8] k, float[1, 4, 36, 8] v) => (float[1, 4, 36, 8] y)"
        " {y = Attention(q, k, v)}",
        {name: numbers(1, 4, 36, 8) for name in "qkv"},
    ),
    "attention of few queries": (
        "(float[1, 4, 2, 8] q, float[1, 2, 72, 8] k, float[1, 2, 72, 8] v) => (float[1, 4, 2, 8] y)"
        " {y = Attention(q, k, v)}",
        {"q": numbers(1, 4, 2, 8), "k": numbers(1, 2, 72, 8), "v": numbers(1, 2, 72, 8)},
    ),
    "attention in float16": (
        "(float16[1, 4, 40, 16] q, float16[1, 4, 40, 16] k, float16[1, 4, 40, 16] v) => (float16[1, 4, 40, 16] y)"
        " {y = Attention(q, k, v)}",
        {name: numbers(1, 4, 40, 16, dtype=np.float16) for name in "qkv"},
    ),
    "DFT": ("(float[9, 64, 2] x) => (float[9, 64, 2] y) {y = DFT<axis=1>(x)}", {"x": numbers(9, 64, 2)}),
    "Det": ("(float[12, 12, 12] x) => (float[12] y) {y = Det(x)}", {"x": numbers(12, 12, 12)}),
    "GatherElements": (
        "(float[40, 30] x, int64[30, 30] i) => (float[30, 30] y) {y = GatherElements(x, i)}",
        {"x": numbers(40, 30), "i": integers(30, 30, most=40)},
    ),
    "ScatterND": (
        "(float[50, 30] x, int64[9, 1] i, float[9, 30] u) => (float[50, 30] y) {y = ScatterND(x, i, u)}",
        {"x": numbers(50, 30), "i": np.arange(9).reshape(9, 1) * 5, "u": numbers(9, 30)},
    ),
}  # fmt: skip

OPSETS = {"attention": 23}
"""Opsets of cases by how their names begin; the others have 18."""


def tolerance(expected: Any) -> dict[str, Any]:
    return {"rtol": 2e-3, "atol": 2e-3} if expected.dtype == np.float16 else {"rtol": 1e-4, "atol": 1e-5}


def gpu_session(model: ModelProto) -> ort.InferenceSession:
    """A session that runs no node on the host."""
    options = ort.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    return ort.InferenceSession(model.SerializeToString(), options)


def sized(op_type: str, size: int) -> ModelProto:
    """A model of one node, y = op(x), float32 of `size` elements."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [size]) for name in "xy")
    graph = helper.make_graph([helper.make_node(op_type, ["x"], ["y"])], "test", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("case", CASES)
def test_run__tensors_above_a_binding__as_onnxruntime_on_the_gpu_alone(case: str, desktop_gpu: None) -> None:
    text, feeds = CASES[case]
    model = text_model(f"g {text}", opset=OPSETS.get(case.split()[0], 18))
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    with with_bindings(LIMIT):
        session = gpu_session(model)
        results = session.run(None, feeds)
    for mine, theirs in zip(results, expected, strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, **tolerance(theirs))


@pytest.mark.parametrize("case", [case for case, (_, feeds) in CASES.items() if len(feeds) > 1])
def test_run__constants_above_a_binding__as_onnxruntime_on_the_gpu_alone(case: str, desktop_gpu: None) -> None:
    text, feeds = CASES[case]
    model = text_model(f"g {text}", opset=OPSETS.get(case.split()[0], 18))
    first, *others = feeds
    constants = {name: numpy_helper.from_array(feeds[name], name) for name in others}
    model.graph.initializer.extend(constants.values())
    inputs = [given for given in model.graph.input if given.name not in constants]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    (expected, *_) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {first: feeds[first]})
    with with_bindings(LIMIT):
        (result, *_) = gpu_session(model).run(None, {first: feeds[first]})
    np.testing.assert_allclose(result, expected, **tolerance(expected))


def test_run__tensor_above_a_buffer__on_the_host_with_the_reason(desktop_gpu: None) -> None:
    x = numbers(2 * LIMIT // 4 + 1)
    with with_bindings(LIMIT):
        session = ort.InferenceSession(sized("Relu", x.size).SerializeToString())
        (y,) = session.run(None, {"x": x})
        (node,) = session.explain().nodes
        assert "8,196 bytes exceeds the device's buffer limit of 8,192" in node.reason
    np.testing.assert_array_equal(y, np.maximum(x, 0))


HOSTED = {
    "marks of atomics": (
        "(float[1500] x, int64[600] i, float[600] u) => (float[1500] y) {y = ScatterElements(x, i, u)}",
        {"x": numbers(1500), "i": (np.arange(600) * 7) % 1500, "u": numbers(600)},
        "a tensor of 6,000 bytes exceeds the device's binding limit of 4,096",
    ),
    "attention of five large tensors": (
        "(float[1, 4, 36, 8] q, float[1, 4, 36, 8] k, float[1, 4, 36, 8] v, float[36, 36] m) => (float[1, 4, 36, 8] y)"
        " {y = Attention(q, k, v, m)}",
        {**{name: numbers(1, 4, 36, 8) for name in "qkv"}, "m": numbers(36, 36)},
        "buffers, as tensors above a binding are in parts; the device takes 8",
    ),
}


@pytest.mark.parametrize("case", HOSTED)
def test_run__tensors_that_cannot_be_bound__on_the_host_with_the_reason(case: str, desktop_gpu: None) -> None:
    text, feeds, reason = HOSTED[case]
    model = text_model(f"g {text}", opset=OPSETS.get(case.split()[0], 18))
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    with with_bindings(LIMIT):
        session = ort.InferenceSession(model.SerializeToString())
        (result,) = session.run(None, feeds)
        (node,) = session.explain().nodes
    assert reason in node.reason
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def test_run__tensor_of_160_mib_at_portable_limits__on_the_gpu_alone(desktop_gpu: None) -> None:
    x = np.resize(numbers(1 << 20), 40 << 20)
    with on_target("default") as device:
        assert device.target.limits == Limits()
        (y,) = gpu_session(sized("Relu", x.size)).run(None, {"x": x})
        assert device.target.limits.binding_bytes < x.nbytes < device.target.limits.buffer_bytes
    np.testing.assert_array_equal(y, np.maximum(x, 0))


def test_run__input_and_output_of_160_mib_on_the_gpu__bound_in_parts(desktop_gpu: None) -> None:
    x = np.resize(numbers(1 << 20), 40 << 20)
    with on_target("default") as device:
        assert device.target.limits == Limits()
        session = gpu_session(sized("Neg", x.size))
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(x, "webgpu"))
        binding.bind_output("y", "webgpu")
        session.run_with_iobinding(binding)
        (y,) = binding.get_outputs()
        assert y.device_name() == "webgpu"
        result = y.numpy()
    np.testing.assert_array_equal(result, -x)

"""Operators that are said by others, in whole models: what planning makes of them, errors, branches, names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import pyruntime as ort
from pyruntime.compiler.build import build_plan
from pyruntime.compiler.plan import HostStep
from pyruntime.errors import InvalidGraph, NotImplemented
from pyruntime.ir import DType, TensorType
from pyruntime.kernels import Target
from pyruntime.onnx.importer.model import import_model
from pyruntime.onnx.reader import read_model
from pyruntime.passes import optimize
from tests.compiler.graphs import typed_graph

MS = "com.microsoft"


def model(nodes: list[Any], inputs: dict[str, Any], outputs: list[str], weights: dict[str, Any]) -> bytes:
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in inputs.items()
        ],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
        [numpy_helper.from_array(a, n) for n, a in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MS, 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString())


def block() -> tuple[bytes, dict[str, Any]]:
    """A layer of BERT without its attention, as onnxruntime's optimiser writes it."""
    rng = np.random.default_rng(0)
    h, wide = 48, 96

    def weights(*shape: int) -> Any:
        return (rng.standard_normal(shape) / 4).astype(np.float32)

    made = {"word": weights(20, h), "place": weights(8, h), "kind": weights(2, h)}
    made |= {n: weights(h) for n in ("g0", "b0", "g1", "b1", "g2", "b2", "c2", "c1")}
    made |= {"w1": weights(h, wide), "w2": weights(wide, h), "c": weights(wide), "w0": weights(h, h)}
    nodes = [
        helper.make_node("EmbedLayerNormalization", ["ids", "kinds", "word", "place", "kind", "g0", "b0"], ["e", ""],
                         "embed", domain=MS),
        helper.make_node("FusedMatMul", ["e", "w0"], ["p"], "project", domain=MS, alpha=0.5, transB=1),
        helper.make_node("SkipLayerNormalization", ["p", "e", "g1", "b1", "c1"], ["n1", "", "", "s1"], "norm1",
                         domain=MS),
        helper.make_node("MatMul", ["n1", "w1"], ["m1"], "up"),
        helper.make_node("BiasGelu", ["m1", "c"], ["a"], "act", domain=MS),
        helper.make_node("MatMul", ["a", "w2"], ["m2"], "down"),
        helper.make_node("SkipLayerNormalization", ["m2", "s1", "g2", "b2", "c2"], ["y"], "norm2", domain=MS),
    ]  # fmt: skip
    ids = rng.integers(0, 20, (2, 5)).astype(np.int32)
    feeds = {"ids": ids, "kinds": rng.integers(0, 2, (2, 5)).astype(np.int32)}
    return model(nodes, feeds, ["y"], made), feeds


def test_model__optimised_bert_layer__agrees_with_onnxruntime() -> None:
    data, feeds = block()
    (mine,) = ort.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, feeds)
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(mine, session.run(None, feeds)[0], 1e-4, 1e-5)


def planned(data: bytes) -> Any:
    """The plan of a model of two [2, 5] inputs of ids."""
    graph = import_model(read_model(memoryview(data))).graph
    types = {v.name: TensorType(DType.INT32, (2, 5)) for v in graph.inputs}
    typed = typed_graph(graph.nodes, types, [v.name for v in graph.outputs], dict(graph.constants))
    target = Target(disabled=frozenset({"matmul_split"}))  # a product is one dispatch
    optimize(typed, target)
    return build_plan(typed, target)


def test_plan__optimised_bert_layer__fuses_as_the_plain_model_would() -> None:
    plan = planned(block()[0])
    assert not [s for s in plan.steps if isinstance(s, HostStep)]
    kernels = [c.kernel.split("_")[0] for c in plan.commands]
    embedding = ["gather", "gather", "fused", "normalize"]  # the positions are folded
    assert kernels == [*embedding, "matmul", "normalize", "matmul", "matmul", "normalize"]


def test_plan__skip_norm_after_no_product__is_one_dispatch() -> None:
    x = np.zeros((2, 5), np.int32)
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["a"]),
        helper.make_node("Gather", ["table", "kinds"], ["b"]),
        helper.make_node("SkipSimplifiedLayerNormalization", ["a", "b", "g"], ["y", "", "", "s"], "n", domain=MS),
        helper.make_node("Add", ["y", "s"], ["z"]),
    ]
    weights = {"table": np.ones((4, 16), np.float32), "g": np.ones(16, np.float32)}
    plan = planned(model(nodes, {"ids": x, "kinds": x}, ["z"], weights))
    assert [c.kernel.split("_")[0] for c in plan.commands] == ["gather", "gather", "normalize", "add"]


def test_error__inputs_that_do_not_fit__names_the_node_of_the_model() -> None:
    x = np.zeros((2, 3), np.float32)
    node = helper.make_node("BiasGelu", ["x", "b"], ["y"], "my_gelu", domain=MS)
    data = model([node], {"x": x, "b": np.zeros(4, np.float32)}, ["y"], {})
    with pytest.raises(InvalidGraph, match=r"my_gelu.*BiasGelu.*expected a bias \[3\]"):
        ort.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, {"x": x, "b": np.zeros(4, np.float32)})


def test_import__too_many_inputs__is_refused() -> None:
    node = helper.make_node("QuickGelu", ["x", "x"], ["y"], "q", domain=MS)
    with pytest.raises(InvalidGraph, match="QuickGelu takes 1 inputs, got 2"):
        ort.InferenceSession(model([node], {"x": np.zeros(2, np.float32)}, ["y"], {}))


def test_import__unknown_operator_of_the_domain__says_how_to_export() -> None:
    node = helper.make_node("AttnLSTM", ["x"], ["y"], "a", domain=MS)
    with pytest.raises(NotImplemented, match=r"AttnLSTM.*without.*optimiz"):
        ort.InferenceSession(model([node], {"x": np.zeros(2, np.float32)}, ["y"], {}))


def plain() -> tuple[bytes, dict[str, Any]]:
    """A convolution with its activation, then a layer of a transformer, of ONNX's operators alone."""
    rng = np.random.default_rng(1)

    def weights(*shape: int) -> Any:
        return (rng.standard_normal(shape) / 4).astype(np.float32)

    made = {"w": weights(16, 3, 3, 3), "b": weights(16), "m": weights(16, 16), "c": weights(16), "g": weights(16)}
    made |= {"u": weights(16, 32), "ub": weights(32), "d": weights(32, 16), "scale": np.array(0.25, np.float32)}
    made |= {"rows": np.array([2, 36, 16]), "alpha": np.array(1.702, np.float32)}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["k"], kernel_shape=[3, 3]),
        helper.make_node("LeakyRelu", ["k"], ["a"], alpha=0.2),
        helper.make_node("Transpose", ["a"], ["t"], perm=[0, 2, 3, 1]),
        helper.make_node("Reshape", ["t", "rows"], ["r"]),
        helper.make_node("Transpose", ["r"], ["rt"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["r", "rt"], ["s"]),
        helper.make_node("Mul", ["s", "scale"], ["ss"]),
        helper.make_node("Softmax", ["ss"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "r"], ["v"]),
        helper.make_node("MatMul", ["v", "m"], ["o"]),
        helper.make_node("Add", ["o", "c"], ["oc"]),
        helper.make_node("Add", ["oc", "r"], ["sum"]),
        helper.make_node("LayerNormalization", ["sum", "g", "c"], ["n"], axis=-1),
        helper.make_node("MatMul", ["n", "u"], ["up"]),
        helper.make_node("Add", ["up", "ub"], ["upb"]),
        helper.make_node("Mul", ["upb", "alpha"], ["q"]),
        helper.make_node("Sigmoid", ["q"], ["qs"]),
        helper.make_node("Mul", ["upb", "qs"], ["act"]),
        helper.make_node("MatMul", ["act", "d"], ["y"]),
    ]
    feeds = {"x": rng.standard_normal((2, 3, 8, 8)).astype(np.float32)}
    return model(nodes, feeds, ["y"], made), feeds


def optimised_by_onnxruntime(data: bytes, level: str, path: Path) -> bytes:
    """What onnxruntime's optimiser makes of a model."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(path / "optimised.onnx")
    options.log_severity_level = 4
    onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return (path / "optimised.onnx").read_bytes()


def test_model__that_onnxruntime_optimised__agrees_with_the_plain_one(tmp_path: Path) -> None:
    data, feeds = plain()
    expected = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, feeds)[0]
    optimised = optimised_by_onnxruntime(data, "ORT_ENABLE_EXTENDED", tmp_path)
    fused = {n.op_type for n in onnx.load_from_string(optimised).graph.node if n.domain == MS}
    assert fused == {"FusedConv", "FusedMatMul", "SkipLayerNormalization", "QuickGelu"}
    (mine,) = ort.InferenceSession(optimised, providers=["CPUExecutionProvider"]).run(None, feeds)
    np.testing.assert_allclose(mine, expected, 1e-4, 1e-5)


def test_import__layout_for_one_processor__says_how_to_optimise(tmp_path: Path) -> None:
    optimised = optimised_by_onnxruntime(plain()[0], "ORT_ENABLE_ALL", tmp_path)
    if "com.microsoft.nchwc" not in {n.domain for n in onnx.load_from_string(optimised).graph.node}:
        pytest.skip("onnxruntime has no layout of its own for this processor")
    with pytest.raises(NotImplemented, match="at level 'extended' or below"):
        ort.InferenceSession(optimised)

"""MoEGroupRouter with an input projection, which random cases leave out: onnxruntime wants widths of 256 there."""

from __future__ import annotations

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

import pyruntime


def test_projection__scores_and_weights__are_those_of_onnxruntime() -> None:
    node = helper.make_node(
        "MoEGroupRouter", ["x", "bias", "w"], ["", "scores", "weights"], domain="com.microsoft", top_k=2, n_group=1
    )
    shapes = {"x": (3, 256), "bias": (6,), "w": (6, 256)}
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("scores", "weights")]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "g", inputs, outputs)
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    rng = np.random.default_rng(0)
    feeds = {n: rng.standard_normal(s).astype(np.float32) / 8 for n, s in shapes.items()}
    theirs = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feeds)
    for ours, wanted in zip(pyruntime.InferenceSession(model).run(None, feeds), theirs, strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-5, atol=1e-6)

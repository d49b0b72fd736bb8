"""Models that the API tests feed to onnxruntime and to this package."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

__all__ = ["affine", "changed"]


def affine() -> ModelProto:
    """y = relu(x W + b), s = 'sequence' of y; x: float [N, 3], b may be overridden."""
    constants = {"w": np.ones((3, 2), np.float32), "b": np.array([0.5, -9], np.float32)}
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["h"], "product"),
            helper.make_node("Add", ["h", "b"], ["z"], "shift"),
            helper.make_node("Relu", ["z"], ["y"], "cut"),
        ],
        "affine",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3]),
            helper.make_tensor_value_info("b", TensorProto.FLOAT, [2]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 2])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
        doc_string="a graph",
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model.graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    model.producer_name, model.model_version, model.domain, model.doc_string = "tests", 3, "example", "a model"
    helper.set_model_props(model, {"author": "unknown"})
    return model


def changed(change: Any) -> bytes:
    """The affine model after `change(model)`."""
    model = affine()
    change(model)
    return bytes(model.SerializeToString())

"""Small models that reach every kind of step: weights computed on the GPU, several stages, several segments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

__all__ = ["branching", "counted", "double", "segmented", "staged"]

_F = TensorProto.FLOAT


def _model(
    nodes: Sequence[NodeProto], outputs: dict[str, int], initializers: list[TensorProto], shape: Sequence[Any]
) -> bytes:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", _F, shape)],
        [helper.make_tensor_value_info(n, t, None) for n, t in outputs.items()],
        initializers,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


def double(shape: tuple[Any, ...] = ("rows", 4)) -> bytes:
    """y = relu(x + x): one stage of one segment."""
    nodes = [helper.make_node("Add", ["x", "x"], ["s"]), helper.make_node("Relu", ["s"], ["y"])]
    return _model(nodes, {"y": _F}, [], list(shape))


def staged() -> bytes:
    """p = relu(x @ Wᵀ), y = indices of what is not 0 in p, z = those + 1. x: float32 [rows, 160].

    Wᵀ is computed on the GPU when the model is loaded.
    """
    w = np.linspace(-1, 1, 160 * 160, dtype=np.float32).reshape(160, 160)
    nodes = [
        helper.make_node("Transpose", ["w"], ["wt"]),
        helper.make_node("MatMul", ["x", "wt"], ["m"]),
        helper.make_node("Relu", ["m"], ["p"]),
        helper.make_node("NonZero", ["p"], ["y"]),
        helper.make_node("Transpose", ["y"], ["yt"]),
        helper.make_node("GatherND", ["p", "yt"], ["g"]),
        helper.make_node("Add", ["g", "one"], ["z"]),
    ]
    initializers = [numpy_helper.from_array(w, "w"), numpy_helper.from_array(np.ones(1, np.float32), "one")]
    return _model(nodes, {"y": TensorProto.INT64, "z": _F}, initializers, ["rows", 160])


def segmented() -> bytes:
    """y = relu(2x + x): a sequence in the middle is the host's, between two segments. x: float32 [rows, 2, 2]."""
    nodes = [
        helper.make_node("Add", ["x", "x"], ["s"]),
        helper.make_node("SequenceConstruct", ["s"], ["q"]),
        helper.make_node("ConcatFromSequence", ["q"], ["d"], axis=0),
        helper.make_node("Add", ["d", "x"], ["t"]),
        helper.make_node("Relu", ["t"], ["y"]),
    ]
    return _model(nodes, {"y": _F}, [], ["rows", 2, 2])


def counted() -> bytes:
    """y = Σ of 2 over as many elements as `rows` says, a running sum between them, which the GPU has to hold."""
    nodes = [
        helper.make_node("ConstantOfShape", ["rows"], ["c"], value=numpy_helper.from_array(np.ones(1, np.float32))),
        helper.make_node("CumSum", ["c", "axis"], ["s"]),
        helper.make_node("ReduceMax", ["s"], ["m"], keepdims=0),
        helper.make_node("Add", ["m", "m"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("rows", TensorProto.INT64, [1])],
        [helper.make_tensor_value_info("y", _F, None)],
        [numpy_helper.from_array(np.array(0, np.int64), "axis")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


def branching(trips: int = 2**62) -> bytes:
    """y = Loop of `trips` trips over x + x."""
    body = helper.make_graph(
        [helper.make_node("Add", ["v", "v"], ["w"]), helper.make_node("Identity", ["c"], ["d"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", _F, None),
        ],
        [helper.make_tensor_value_info("d", TensorProto.BOOL, []), helper.make_tensor_value_info("w", _F, None)],
    )
    nodes = [helper.make_node("Loop", ["m", "", "x"], ["y"], body=body)]
    return _model(nodes, {"y": _F}, [numpy_helper.from_array(np.array(trips, np.int64), "m")], [2])

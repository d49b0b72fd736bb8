"""Models of float16: attention between casts, which has kernels of its own with shader-f16; sums beyond 65504."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from pyruntime.ir import Array, Node
from tests.compiler.graphs import node
from tests.models import text_model

__all__ = [
    "CONSTANTS",
    "SCALED",
    "TOLERANCE",
    "N",
    "attention",
    "attention_in_float64",
    "feeds",
    "norm",
    "norm_feed",
    "norm_in_float64",
    "sums_model",
]

TOLERANCE = 2.0**-10
"""A unit in the last place of float16."""


def attention() -> onnx.ModelProto:
    """y [4, 32, 32, 128] = attention of q with 16 keys, by float16; inputs and output are float32."""
    return text_model(
        """
        g (float[4,32,32,128] q, float[4,32,16,128] k, float[4,32,16,128] v) => (float[4,32,32,128] y) {
            q16 = Cast<to = 10>(q)
            k16 = Cast<to = 10>(k)
            v16 = Cast<to = 10>(v)
            y16 = Attention(q16, k16, v16)
            y = Cast<to = 1>(y16)
        }
        """,
        23,
    )


def feeds() -> dict[str, Array]:
    """Numbers that are float16's."""
    random = np.random.default_rng(5)
    shapes = {"q": (4, 32, 32, 128), "k": (4, 32, 16, 128), "v": (4, 32, 16, 128)}
    return {n: random.standard_normal(shape).astype(np.float16).astype(np.float32) for n, shape in shapes.items()}


def attention_in_float64(q: Array, k: Array, v: Array) -> Array:
    """softmax(q kᵀ / sqrt(d)) v."""
    wide = [x.astype(np.float64) for x in (q, k, v)]
    scores = wide[0] @ wide[1].swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    raised = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(raised / raised.sum(-1, keepdims=True) @ wide[2])


N = 512
"""Elements of a row of the models of sums."""

CONSTANTS: dict[str, Any] = {
    "n": np.float16(1 / N),
    "axes": np.array([-1]),
    "last": np.array(1),
    "zero": np.float16(0),
    "eps": np.float16(1e-3),
    "w": np.full((N, 2), 15, np.float16),
}


def norm() -> list[Node]:
    """The layer norm of Flax: E[x^2] - E[x]^2, means as sums and products."""
    return [
        node("ReduceSum", ["x", "axes"], ["s"]),
        node("Mul", ["s", "n"], ["mean"]),
        node("Mul", ["x", "x"], ["xx"]),
        node("ReduceSum", ["xx", "axes"], ["ss"]),
        node("Mul", ["ss", "n"], ["mean2"]),
        node("Mul", ["mean", "mean"], ["square"]),
        node("Sub", ["mean2", "square"], ["d"]),
        node("Max", ["zero", "d"], ["v"]),
        node("Add", ["v", "eps"], ["ve"]),
        node("Sqrt", ["ve"], ["root"]),
        node("Reciprocal", ["root"], ["inverse"]),
        node("Sub", ["x", "mean"], ["centred"]),
        node("Mul", ["centred", "inverse"], ["y"]),
    ]


def norm_in_float64(x: Array) -> Array:
    """`norm` of x."""
    x = x.astype(np.float64)
    return np.asarray((x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-3))


def norm_feed() -> Array:
    """Numbers whose squares sum to some 120,000, and whose variance is 1 % of their square."""
    return (15 + 1.5 * np.random.default_rng(0).standard_normal((3, N))).astype(np.float16)


BY_SIZE = [
    node("Shape", ["x"], ["shape"]),
    node("Gather", ["shape", "last"], ["size"]),
    node("Cast", ["size"], ["count"], to=10),
    node("ReduceSum", ["x", "axes"], ["s"]),
    node("Div", ["s", "count"], ["y"]),
]
SCALED: dict[str, tuple[list[Node], float, float]] = {
    "norm": ([node("ReduceL2", ["x", "axes"], ["s"]), node("Div", ["x", "s"], ["y"])], 3000, 3000 / (3000 * N**0.5)),
    "softmax": (
        [node("Exp", ["x"], ["e"]), node("ReduceSum", ["e", "axes"], ["s"]), node("Div", ["e", "s"], ["y"])],
        10,
        1 / N,
    ),
    "sums": (
        [node("ReduceSum", ["x", "axes"], ["s"]), node("ReduceSum", ["x"], ["t"]), node("Div", ["s", "t"], ["y"])],
        300,
        1 / 3,
    ),
    "mean by its size": (BY_SIZE, 200, 200),
    "scores": ([node("MatMul", ["x", "w"], ["p"]), node("Mul", ["p", "n"], ["y"])], 15, 225),
}
"""Nodes, x everywhere, y everywhere: sums beyond 65504, which come back."""


def sums_model(nodes: list[Node], shape: tuple[int, ...]) -> onnx.ModelProto:
    """y of x [3, N] by `nodes`, all of float16."""
    kinds: dict[str, Any] = {"Cast": {"to": onnx.TensorProto.FLOAT16}}
    made = [helper.make_node(n.op.op_type, n.inputs, n.outputs, **kinds.get(n.op.op_type, {})) for n in nodes]
    tensors = [numpy_helper.from_array(np.asarray(a), n) for n, a in CONSTANTS.items()]
    values = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT16, s) for n, s in (("x", shape), ("y", None))]
    graph = helper.make_graph(made, "g", values[:1], values[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)

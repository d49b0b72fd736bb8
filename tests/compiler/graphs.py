"""Graphs for planner tests: random chains and branches of real operators over small square matrices."""

from __future__ import annotations

from hypothesis import strategies as st

from pyruntime.compiler.typing import Guards, Typing
from pyruntime.ir import Constant, DType, Node, TensorType, TypedGraph, ValueType
from pyruntime.ops.base import LATEST
from pyruntime.ops.registry import op_class

__all__ = ["node", "random_graph", "typed_graph"]


def node(op_type: str, inputs: list[str], outputs: list[str], **attributes: object) -> Node:
    """A node of the newest opset."""
    op = op_class(op_type, "", LATEST)(present=tuple(map(bool, outputs)), **attributes)
    return Node(op, tuple(inputs), tuple(outputs), f"{op_type}_{outputs[0]}")


def typed_graph(
    nodes: list[Node],
    inputs: dict[str, TensorType],
    outputs: list[str],
    constants: dict[str, Constant] | None = None,
) -> TypedGraph:
    """The graph with types inferred from the inputs' types."""
    constants = constants or {}
    types: dict[str, ValueType] = {n: TensorType(t.dtype, t.shape, None, n) for n, t in inputs.items()}
    types |= {n: TensorType(c.type.dtype, c.type.shape, c.numpy, n) for n, c in constants.items()}
    typing = Typing(types, set(constants), Guards({}))
    rest, boundary = typing.run(nodes)
    assert not rest and boundary is None
    graph = typing.graph(list(inputs), outputs, constants)
    graph.verify()
    return graph


@st.composite
def random_graph(draw: st.DrawFn) -> TypedGraph:
    """Up to 25 nodes: elementwise (may run in place), views, row kernels, concatenation with slices taken back."""
    side = draw(st.sampled_from([4, 12, 40]))
    square = TensorType(DType.FLOAT, (side, side))
    names, nodes = ["x0", "x1"], list[Node]()
    constants = {"target": Constant.from_array(__import__("numpy").array([side, side], "int64"))}
    for number in range(draw(st.integers(1, 25))):
        kind = draw(st.sampled_from(["Relu", "Add", "Transpose", "Softmax", "Reshape", "Concat"]))
        a, b, y = draw(st.sampled_from(names)), draw(st.sampled_from(names)), f"v{number}"
        if kind == "Reshape":
            nodes.append(node("Reshape", [a, "target"], [y]))
        elif kind == "Concat":
            nodes.append(node("Concat", [a, b], [f"{y}_wide"], axis=0))
            nodes.append(node("Split", [f"{y}_wide"], [f"{y}_top", y], axis=0, num_outputs=2))
        else:
            nodes.append(node(kind, [a, b] if kind == "Add" else [a], [y]))
        names.append(y)
    outputs = draw(st.lists(st.sampled_from(names[2:]), min_size=1, max_size=3, unique=True))
    return typed_graph(nodes, {"x0": square, "x1": square}, outputs, constants)

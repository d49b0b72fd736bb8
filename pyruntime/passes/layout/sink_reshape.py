"""Move reshapes after elementwise operators, so that these become epilogues of the product before the reshape.

f(reshape(x), z) = reshape(f(x, z')), where z' is z reshaped (a view, free), a scalar, or a vector along the unchanged
last dimension.
"""

from __future__ import annotations

from typing import Any

from pyruntime.ir import Node, TensorType, TypedGraph
from pyruntime.kernels import Target
from pyruntime.ops.elementwise.elementwise import Elementwise
from pyruntime.passes.graph_pass import Fact, graph_pass
from pyruntime.passes.writer import reshaped

__all__ = ["run"]

_PRODUCTS = (*(("", n) for n in ("Gemm", "MatMul", "Conv", "ConvTranspose")), ("pyruntime", "DepthwiseLast"))


@graph_pass(breaks=(Fact.NO_DEAD_NODES,))
def run(graph: TypedGraph, target: Target) -> bool:
    """Move all reshapes between a product and an elementwise operator; returns whether there were any."""
    moved: set[str] = set()
    for node in graph.nodes:
        made = _moved(graph, node, moved)
        if made is not None:
            graph.substitute({node: made})
    return bool(moved)


def _moved(graph: TypedGraph, node: Node, moved: set[str]) -> list[Node] | None:
    """Return the replacement of an elementwise node that moves, or None; adds its result to `moved`."""
    if not isinstance(node.op, Elementwise) or any(node.outputs[1:]) or node.outputs[0] in graph.static:
        return None
    y = graph.tensor(node.outputs[0])
    before = next((b for n in node.inputs if n and (b := _before(graph, n, y, moved))), None)
    if before is None:
        return None
    shape = graph.tensor(before).shape
    added: list[Node] = []
    inputs: list[str] = []
    for name in node.inputs:
        operand = _operand(graph, name, y, shape, added) if name else ""
        if operand is None:
            return None
        inputs.append(operand)
    inner = graph.add_value(f"{node.outputs[0]}.before_reshape", TensorType(y.dtype, shape))
    moved.add(inner)
    return [*added, Node(node.op, tuple(inputs), (inner,), node.name), reshaped(graph, inner, node.outputs[0], y.shape)]


def _before(graph: TypedGraph, name: str, y: TensorType, moved: set[str]) -> str | None:
    """Return the input of the reshape that produces `name`, if a product or a moved operator produces that input."""
    node = graph.producer(name)
    if node is None or node.op.op_type != "Reshape" or node.op.domain or name in graph.static:
        return None
    source = node.inputs[0]
    maker: Any = graph.producer(source)
    shape = graph.tensor(source).shape
    if maker is None or not shape or not y.shape or graph.tensor(name).shape != y.shape or shape[-1] != y.shape[-1]:
        return None
    return source if source in moved or (maker.op.domain, maker.op.op_type) in _PRODUCTS else None


def _operand(graph: TypedGraph, name: str, y: TensorType, shape: tuple[int, ...], added: list[Node]) -> str | None:
    """Return `name` as an operand that broadcasts to `shape`, or None."""
    kind = graph.types[name]
    if not isinstance(kind, TensorType):
        return None
    if kind.shape == y.shape:
        node = graph.producer(name)
        if node is not None and node.op.op_type == "Reshape" and graph.tensor(node.inputs[0]).shape == shape:
            return node.inputs[0]
        inner = graph.add_value(f"{name}.reshaped", TensorType(kind.dtype, shape))
        added.append(reshaped(graph, name, inner, shape))
        return inner
    stretched = (1,) * (y.rank - kind.rank) + kind.shape
    if kind.size == 1 and kind.rank <= len(shape):
        return name
    if kind.rank <= len(shape) and stretched == (1,) * (y.rank - 1) + y.shape[-1:] and kind.rank == 1:
        return name
    return None

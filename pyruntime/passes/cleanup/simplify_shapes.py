"""Replace computed shapes by constants, and remove nodes that do not change their input.

- The shape input of Reshape and Expand becomes a constant for the planned sizes (dynamic dimensions stay symbolic).
  Values then lose consumers that only computed shapes, so that patterns match.
- Identity, Cast to the same type, identity Transpose, Concat of one tensor, and Reshape, Expand, Slice and Pad without
  effect are removed.

Nodes that produce graph outputs or static values stay.
"""

from __future__ import annotations

from typing import Any

from pyruntime.ir import Dim, DType, Node, TensorType, TypedGraph, ValueNeeded, int_array
from pyruntime.kernels import Target
from pyruntime.ops.registry import newest
from pyruntime.passes.graph_pass import Fact, graph_pass

__all__ = ["run", "same_shape"]


@graph_pass(ensures=(Fact.SHAPES_CONSTANT,), breaks=(Fact.NO_DEAD_NODES,))
def run(graph: TypedGraph, target: Target) -> bool:
    """Rewrite all such nodes; returns whether there were any."""
    wanted = set(graph.outputs)
    unneeded: list[Node] = []
    changed = False
    for node in graph.nodes:
        if node.op.domain or node.outputs[0] in graph.static:
            continue
        if node.outputs[0] not in wanted and _changes_nothing(graph, node):
            graph.replace_all_uses(node.outputs[0], node.inputs[0])
            unneeded.append(node)
        else:
            changed |= _write_shape(graph, node)
    return graph.remove(unneeded) or changed


def _changes_nothing(graph: TypedGraph, node: Node) -> bool:
    """Whether output 0 always equals input 0."""
    kinds = [graph.types[n] for n in (node.inputs[0], node.outputs[0]) if n]
    if len(kinds) != 2 or any(node.outputs[1:]):
        return False
    x, y = kinds
    op: Any = node.op
    if op.op_type == "Identity":
        return isinstance(x, TensorType)
    if not isinstance(x, TensorType) or not isinstance(y, TensorType) or x.dtype is not y.dtype or x.rank != y.rank:
        return False
    match op.op_type:
        case "Cast":
            return True
        case "Transpose":
            return tuple(op.permutation(x.rank)) == tuple(range(x.rank))
        case "Concat":
            return len(node.inputs) == 1
        case "Reshape" | "Expand":
            return same_shape(x.shape, y.shape)
        case "Pad":
            return same_shape(x.shape, y.shape) and _pads_nothing(graph, node)
        case "Slice":
            return same_shape(x.shape, y.shape) and _goes_forward(graph, node)
    return False


def same_shape(x: tuple[int, ...], y: tuple[int, ...]) -> bool:
    """Whether two shapes are equal for all sizes of their dynamic dimensions."""
    return all(_terms(a) == _terms(b) for a, b in zip(x, y, strict=True))


def _terms(size: Any) -> Any:
    return size.terms if isinstance(size, Dim) else size


def _goes_forward(graph: TypedGraph, node: Node) -> bool:
    """Whether a Slice has no negative steps."""
    if len(node.inputs) < 5 or not node.inputs[4]:
        return True
    try:
        return all(step > 0 for step in graph.tensor(node.inputs[4]).ints())
    except ValueNeeded:
        return False


def _pads_nothing(graph: TypedGraph, node: Node) -> bool:
    """Whether a Pad neither adds nor removes elements."""
    op: Any = node.op
    if any(n and n not in graph.static for n in node.inputs[1:]):
        return False
    return op.alias(*(graph.types[n] if n else None for n in node.inputs)) is not None


def _write_shape(graph: TypedGraph, node: Node) -> bool:
    """Make the shape of a Reshape or Expand a constant; returns False if it is one, or for other operators."""
    if node.op.op_type not in ("Reshape", "Expand") or len(node.inputs) != 2 or node.inputs[1] in graph.constants:
        return False
    y = graph.tensor(node.outputs[0])
    op = newest("Reshape", allowzero=1) if node.op.op_type == "Reshape" else node.op
    shape = graph.add_constant(int_array(y.shape), DType.INT64, f"{node.outputs[0]}.shape")
    graph.update(node, op, (node.inputs[0], shape))
    return True

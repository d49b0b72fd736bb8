"""An elementwise operator reads what Expand was given where it broadcasts to the same shape itself.

Add(x, Expand(y, shape of x)) = Add(x, y), as torch.nn.functional.normalize divides by its norms, and masks are added.
Only where the shapes are equal for every size of a dynamic dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyruntime.ir import Node, TensorType, TypedGraph
from pyruntime.kernels import Target
from pyruntime.ops.base import LATEST
from pyruntime.passes.cleanup.simplify_shapes import same_shape
from pyruntime.passes.graph_pass import Fact, graph_pass
from pyruntime.passes.match import Matcher

__all__ = ["run"]

BROADCASTS = {
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less"), 7),
    **dict.fromkeys(("GreaterOrEqual", "LessOrEqual", "Where", "Mod", "BitwiseAnd", "BitwiseOr", "BitwiseXor"), 7),
    **dict.fromkeys(("Max", "Min", "Sum", "Mean"), 8),
}
"""Operators to the first opset in which all of their inputs broadcast."""


@graph_pass(breaks=(Fact.NO_DEAD_NODES,))
def run(graph: TypedGraph, target: Target) -> bool:
    """Rewrite every match; True where there was one."""
    match = Matcher(graph)
    changed = False
    for node in graph.nodes:
        inputs = _without_expand(graph, match, node)
        if inputs != node.inputs:
            graph.update(node, inputs=inputs)
            changed = True
    return changed


def _without_expand(graph: TypedGraph, match: Matcher, node: Node) -> tuple[str, ...]:
    """The inputs of a node, with what Expand was given for what it makes."""
    op: Any = node.op
    if op.domain or op.opsets.start < BROADCASTS.get(op.op_type, LATEST + 1):
        return node.inputs
    inputs = list(node.inputs)
    y = graph.tensor(node.outputs[0])
    for i, name in enumerate(inputs):
        expand = match.producer(name, "Expand")
        if expand is None:
            continue
        others = [graph.tensor(n) for n in (*inputs[:i], expand.inputs[0], *inputs[i + 1 :])]
        if _broadcast_to(others, y):
            inputs[i] = expand.inputs[0]
    return tuple(inputs)


def _broadcast_to(kinds: Sequence[TensorType], y: TensorType) -> bool:
    """Whether each dimension of y is that of one of the tensors that broadcast to it."""
    reversed_shapes = [k.shape[::-1] for k in kinds]
    return all(
        any(same_shape(shape[d : d + 1], (size,)) for shape in reversed_shapes if d < len(shape))
        for d, size in enumerate(y.shape[::-1])
    )

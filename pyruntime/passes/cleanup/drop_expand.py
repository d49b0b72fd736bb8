"""Remove Expand before elementwise operators that broadcast to the same shape.

Add(x, Expand(y, shape of x)) = Add(x, y). Examples are torch.nn.functional.normalize and attention masks. The shapes
must be equal for all sizes of dynamic dimensions.
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
"""Operators -> first opset in which all their inputs broadcast."""


@graph_pass(breaks=(Fact.NO_DEAD_NODES,))
def run(graph: TypedGraph, target: Target) -> bool:
    """Rewrite all matches; returns whether there were any."""
    match = Matcher(graph)
    changed = False
    for node in graph.nodes:
        inputs = _without_expand(graph, match, node)
        if inputs != node.inputs:
            graph.update(node, inputs=inputs)
            changed = True
    return changed


def _without_expand(graph: TypedGraph, match: Matcher, node: Node) -> tuple[str, ...]:
    """Return the inputs of a node, with the results of Expand replaced by its inputs where possible."""
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
    """Whether each dimension of y equals that of one of the tensors, which broadcast to y."""
    reversed_shapes = [k.shape[::-1] for k in kinds]
    return all(
        any(same_shape(shape[d : d + 1], (size,)) for shape in reversed_shapes if d < len(shape))
        for d, size in enumerate(y.shape[::-1])
    )

"""An elementwise operator reads what Expand was given where it broadcasts to the same shape itself.

Add(x, Expand(y, shape of x)) = Add(x, y), as torch.nn.functional.normalize divides by its norms, and masks are added.
requires: types. ensures: no such input, where the shapes say so whatever sizes are seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyruntime.ir import Node, TensorType, TypedGraph
from pyruntime.kernels import Target
from pyruntime.passes.match import Matcher
from pyruntime.passes.settle import same_shape

__all__ = ["run"]

BROADCASTS = {
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less"), 7),
    **dict.fromkeys(("GreaterOrEqual", "LessOrEqual", "Where", "Mod", "BitwiseAnd", "BitwiseOr", "BitwiseXor"), 7),
    **dict.fromkeys(("Max", "Min", "Sum", "Mean"), 8),
}
"""Operators to the first opset in which all of their inputs broadcast."""


def run(graph: TypedGraph, target: Target) -> bool:
    """Rewrite every match; True where there was one. What it leaves dead is left to dead_code."""
    match = Matcher(graph)
    changed = False
    made: list[Node] = []
    for node in graph.nodes:
        first = BROADCASTS.get(node.op.op_type) if node.op.domain == "" else None
        if first is not None and node.op.opsets.start >= first:  # type: ignore[attr-defined]
            inputs = _inputs(graph, match, node)
            if inputs != node.inputs:
                changed = True
                node = replace(node, inputs=inputs)
        made.append(node)
    graph.nodes = made
    return changed


def _inputs(graph: TypedGraph, match: Matcher, node: Node) -> tuple[str, ...]:
    inputs = list(node.inputs)
    y = graph.tensor(node.outputs[0])
    for i, name in enumerate(inputs):
        expand = match.maker(name, "Expand")
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

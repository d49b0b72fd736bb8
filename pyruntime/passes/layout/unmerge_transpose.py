"""Remove the reshapes around a transpose, if one merges leading dimensions that the other restores.

reshape(transpose(reshape(x, [n, S, D]), (0, 2, 1)), [.., D, S]) = transpose(x, (.., last, next to last)), as torch's
exporter writes the keys of scaled_dot_product_attention.
"""

from __future__ import annotations

from typing import Any

from pyruntime.ir import Node, TensorType
from pyruntime.kernels import Target
from pyruntime.ops.registry import newest
from pyruntime.passes.graph_pass import Fact, node_pass
from pyruntime.passes.match import Matcher
from pyruntime.passes.writer import reshaped

__all__ = ["run"]


@node_pass(breaks=(Fact.NO_DEAD_NODES,))
def run(match: Matcher, target: Target, node: Node) -> list[Node] | None:
    """Replace the last Reshape by a transpose."""
    graph = match.graph
    if node.op.domain or node.op.op_type != "Reshape" or node.outputs[0] in graph.static:
        return None
    turned = match.producer(node.inputs[0], "Transpose")
    merged = match.producer(turned.inputs[0], "Reshape") if turned is not None else None
    if turned is None or merged is None:
        return None
    op: Any = turned.op
    middle, y = graph.tensor(turned.outputs[0]), graph.tensor(node.outputs[0])
    if middle.rank != 3 or tuple(op.permutation(3)) != (0, 2, 1) or y.rank < 4 or y.shape[-2:] != middle.shape[1:]:
        return None
    shape = (*y.shape[:-2], y.shape[-1], y.shape[-2])
    name = graph.add_value(f"{node.outputs[0]}.unmerged", TensorType(y.dtype, shape))
    perm = (*range(y.rank - 2), y.rank - 1, y.rank - 2)
    return [
        reshaped(graph, merged.inputs[0], name, shape, merged.name),
        Node(newest("Transpose", perm=perm), (name,), node.outputs, turned.name),
    ]

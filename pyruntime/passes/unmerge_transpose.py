"""A transposition between two reshapes, one of which merges leading dimensions that the other restores, goes without.

reshape(transpose(reshape(x, [n, S, D]), (0, 2, 1)), [.., D, S]) = transpose(x, (.., last, next to last)), as torch's
exporter writes the keys of scaled_dot_product_attention. requires: types. ensures: no such pattern.
"""

from __future__ import annotations

from typing import Any

from pyruntime.ir import DType, Node, TensorType, TypedGraph, int_array
from pyruntime.kernels import Target
from pyruntime.ops.registry import newest
from pyruntime.passes.match import Matcher

__all__ = ["run"]


def run(graph: TypedGraph, target: Target) -> bool:
    """Rewrite every match; True where there was one. What it leaves dead is left to dead_code."""
    match = Matcher(graph)
    return graph.rewrite(lambda node: _rewritten(graph, match, node))


def _rewritten(graph: TypedGraph, match: Matcher, node: Node) -> list[Node] | None:
    if node.op.domain or node.op.op_type != "Reshape" or node.outputs[0] in graph.static:
        return None
    turned = match.maker(node.inputs[0], "Transpose")
    merged = match.maker(turned.inputs[0], "Reshape") if turned is not None else None
    if turned is None or merged is None:
        return None
    op: Any = turned.op
    middle, y = graph.tensor(turned.outputs[0]), graph.tensor(node.outputs[0])
    if middle.rank != 3 or tuple(op.permutation(3)) != (0, 2, 1) or y.rank < 4 or y.shape[-2:] != middle.shape[1:]:
        return None
    shape = (*y.shape[:-2], y.shape[-1], y.shape[-2])
    name = graph.fresh(f"{node.outputs[0]}.unmerged")
    graph.types[name] = TensorType(y.dtype, shape, None, name)
    wanted = graph.add_constant(int_array(shape), DType.INT64, f"{name}.shape")
    perm = (*range(y.rank - 2), y.rank - 1, y.rank - 2)
    return [
        Node(newest("Reshape", allowzero=1), (merged.inputs[0], wanted), (name,), merged.name),
        Node(newest("Transpose", perm=perm), (name,), node.outputs, turned.name),
    ]

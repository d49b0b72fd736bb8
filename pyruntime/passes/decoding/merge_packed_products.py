"""Merge query, key and value projections with packed weights into one product, for GroupQueryAttention.

GroupQueryAttention(x Qᵀ, x Kᵀ, x Vᵀ) = GroupQueryAttention(x [Q K V]ᵀ), packed along the last dimension; likewise for
biases. The GPU concatenates the packed rows of the weights once. The products are MatMulNBits of one input that differ
only in N, without g_idx, each with at most one constant bias (an input or a following Add), and without other
consumers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pyruntime.ir import DType, Node, TypedGraph
from pyruntime.kernels import Target
from pyruntime.ops.microsoft.attention.group_query_attention import GroupQueryAttention
from pyruntime.ops.microsoft.products.matmul_nbits import MatMulNBits
from pyruntime.passes.graph_pass import Fact, node_pass
from pyruntime.passes.match import Matcher
from pyruntime.passes.quantization.joined_weights import rows_concatenated
from pyruntime.passes.writer import joined

__all__ = ["run"]


@dataclass(frozen=True, slots=True)
class _Projection:
    """x Wᵀ [+ b]: the product, its operator, and the name of b ("" for none)."""

    product: Node
    op: MatMulNBits
    bias: str


@node_pass(breaks=(Fact.NO_DEAD_NODES,))
def run(match: Matcher, target: Target, node: Node) -> list[Node] | None:
    """Replace three products and the GroupQueryAttention that reads them by one product and the attention."""
    graph = match.graph
    if not isinstance(node.op, GroupQueryAttention) or not all(node.inputs[:3]) or len(set(node.inputs[:3])) < 3:
        return None
    found = [_projection(graph, match, n) for n in node.inputs[:3]]
    parts = [p for p in found if p is not None]
    if len(parts) < 3 or len({(p.product.inputs[0], replace(p.op, N=0)) for p in parts}) > 1:
        return None
    sides = [(*p.product.inputs, "", "", "")[1:4] for p in parts]
    counts = [p.op.N for p in parts]
    # Packing needs as many rows of keys and values as of queries.
    rows = [graph.tensor(n).shape[:-1] for n in node.inputs[:3]]
    if any(r != rows[0] for r in rows):
        return None
    together = rows_concatenated(graph, sides, counts, target.limits.binding_bytes)
    if together is None:
        return None
    nodes, weights = together
    y = graph.tensor(node.inputs[0])
    wide = graph.add_value(f"{node.inputs[0]}.merged", y.with_shape(*y.shape[:-1], sum(counts)))
    inputs = [parts[0].product.inputs[0], *weights]
    if any(p.bias for p in parts):
        bias = _bias(graph, parts, y.dtype)
        nodes.append(bias)
        inputs += [""] * (5 - len(inputs)) + [bias.outputs[0]]
    op = replace(parts[0].op, N=sum(counts))
    product = Node(op, tuple(inputs), (wide,), parts[0].product.name)
    return [*nodes, product, replace(node, inputs=(wide, "", "", *node.inputs[3:]))]


def _projection(graph: TypedGraph, match: Matcher, name: str) -> _Projection | None:
    """Return the projection that produces `name`, or None."""
    node, bias = graph.producer(name), ""
    if node is None or not match.read_once(name):
        return None
    if node.op.op_type == "Add" and not node.op.domain:
        inner = next((n for n in node.inputs if graph.producer(n) is not None and n not in graph.static), "")
        bias = match.other(node, inner) if inner else ""
        node = graph.producer(inner)
        if node is None or bias not in graph.static or not match.read_once(inner):
            return None
    if not isinstance(node.op, MatMulNBits):
        return None
    slots = (*node.inputs, "", "", "")
    if slots[4] or (slots[5] and bias):
        return None
    bias = bias or slots[5]
    if bias and (bias not in graph.static or graph.tensor(bias).shape != (node.op.N,)):
        return None
    return _Projection(node, node.op, bias)


def _bias(graph: TypedGraph, parts: Sequence[_Projection], dtype: DType) -> Node:
    """Return the concatenation of the biases, with zeros for missing ones."""
    names = [p.bias or graph.add_constant(np.zeros(p.op.N, dtype.numpy), dtype, "zeros") for p in parts]
    return joined(graph, names, 0)

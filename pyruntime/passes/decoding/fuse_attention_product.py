"""Fuse attention and the skinny product with packed weights that reads its result.

The attention is a GroupQueryAttention, MultiHeadAttention or Attention that splits its keys across workgroups; the
product reduces the partial results while reading them. The attention's result must have no other consumers.
"""

from __future__ import annotations

from typing import Any

from pyruntime.ir import Node, TypedGraph, upper
from pyruntime.kernels import Target
from pyruntime.kernels.products.candidates import SKINNY_ROWS
from pyruntime.ops.fused.attention_product import AttentionProduct
from pyruntime.ops.fused.with_epilogue import WithEpilogue
from pyruntime.ops.microsoft.products.matmul_nbits import MatMulNBits
from pyruntime.passes.graph_pass import Fact, node_pass
from pyruntime.passes.match import Matcher

__all__ = ["run"]

ATTENTIONS = ("GroupQueryAttention", "GroupQueryAttentionInPlace", "MultiHeadAttention", "Attention")


@node_pass(requires=(Fact.EPILOGUES_FUSED, Fact.CACHES_IN_PLACE))
def run(match: Matcher, target: Target, node: Node) -> dict[Node, list[Node]] | None:
    """Replace the product that reads the attention `node` by a fused node."""
    if target.is_software or not target.allows("merging_skinny") or not _is_attention(node):
        return None
    if not match.read_once(node.outputs[0]):
        return None
    (product,) = match.graph.consumers(node.outputs[0])
    fits = _multiplies(match.graph, product, node.outputs[0])
    return {node: [], product: [_fused(product, node)]} if fits else None


def _is_attention(node: Node) -> bool:
    """Whether the node is an attention without scores as an output."""
    return node.op.op_type in ATTENTIONS and bool(node.outputs[0]) and not any(node.outputs[3:])


def _multiplies(graph: TypedGraph, node: Node, rows: str) -> bool:
    """Whether `rows` are the rows, and no other input, of a skinny product with packed weights."""
    op: Any = node.op
    base = op.base if isinstance(op, WithEpilogue) else op
    if not isinstance(base, MatMulNBits) or node.inputs[0] != rows or node.inputs.count(rows) != 1:
        return False
    kind = graph.tensor(rows)
    return bool(kind.rank) and upper(kind.size // base.K) <= SKINNY_ROWS


def _fused(node: Node, attention: Node) -> Node:
    assert isinstance(node.op, MatMulNBits | WithEpilogue)
    present = (True, *(bool(name) for name in attention.outputs[1:]))
    op: Any = attention.op
    made = AttentionProduct(attention=op, base=node.op, count=len(attention.inputs), present=present)
    return Node(made, (*attention.inputs, *node.inputs[1:]), (node.outputs[0], *attention.outputs[1:]), node.name)

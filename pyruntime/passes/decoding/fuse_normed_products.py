"""Fuse RMS norms into the products with packed weights that read them.

The norm is over the last dimension, with a static scale vector. All its consumers, one or two, are such products, and
each of them computes the norm.
"""

from __future__ import annotations

from typing import Any

from pyruntime.ir import Node, TypedGraph
from pyruntime.kernels import Target
from pyruntime.ops.fused.normed_product import NormedProduct
from pyruntime.ops.fused.paired_product import PairedProduct
from pyruntime.ops.fused.with_epilogue import WithEpilogue
from pyruntime.ops.microsoft.products.matmul_nbits import MatMulNBits
from pyruntime.ops.normalization.layer_normalization import RMSNormalization
from pyruntime.passes.graph_pass import Fact, node_pass
from pyruntime.passes.match import Matcher

__all__ = ["run"]

MOST = 2
"""Maximum number of products that each compute the same norm."""


@node_pass(
    requires=(Fact.PRODUCTS_PAIRED, Fact.EPILOGUES_FUSED, Fact.SKIP_NORMS_FUSED), ensures=(Fact.NORMED_PRODUCTS_FUSED,)
)
def run(match: Matcher, target: Target, node: Node) -> dict[Node, list[Node]] | None:
    """Replace the products after the norm `node` by products that normalize their rows."""
    graph, rows = match.graph, node.outputs[0]
    products = graph.consumers(rows) if _normalizes(graph, node) and rows not in match.wanted else ()
    if not 0 < len(products) <= MOST or not all(_multiplies(product, node) for product in products):
        return None
    return {node: [], **{product: [_fused(product, node)] for product in products}}


def _normalizes(graph: TypedGraph, node: Node) -> bool:
    """Whether the node is an RMS norm of float rows over the last dimension, with a static scale vector."""
    op = node.op
    if not isinstance(op, RMSNormalization) or any(node.outputs[1:]) or not graph.is_given(node.inputs[1]):
        return False
    x, gain = (graph.tensor(n) for n in node.inputs)
    if x.dtype.compute != "f32" or gain.dtype.compute != "f32" or not x.rank:
        return False
    return op.reduced(x.shape) == (x.rank - 1,) and gain.shape == x.shape[-1:]


def _multiplies(node: Node, norm: Node) -> bool:
    """Whether the result of `norm` is the rows, and no other input, of a product with packed weights."""
    op: Any = node.op
    base = op.base if isinstance(op, WithEpilogue) else op
    return (
        isinstance(base, MatMulNBits | PairedProduct)
        and node.inputs.count(norm.outputs[0]) == 1
        and (node.inputs[0] == norm.outputs[0])
    )


def _fused(node: Node, norm: Node) -> Node:
    assert isinstance(norm.op, RMSNormalization)
    assert isinstance(node.op, MatMulNBits | PairedProduct | WithEpilogue)
    op = NormedProduct(base=node.op, count=len(node.inputs), norm=norm.op)
    return Node(op, (norm.inputs[0], *node.inputs[1:], norm.inputs[1]), node.outputs, node.name)

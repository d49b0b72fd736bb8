"""RMS norms move into the products with packed weights that read them, where nothing else does.

The norm is over the last dimension, scaled by a vector that is known before the run; one or two products read it as
their rows, and each computes it.
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
from pyruntime.passes.graph_pass import Fact, graph_pass

__all__ = ["run"]

MOST = 2
"""Products of one norm that each do its work, at most."""


@graph_pass(
    requires=(Fact.PRODUCTS_PAIRED, Fact.EPILOGUES_FUSED, Fact.SKIP_NORMS_FUSED), ensures=(Fact.NORMED_PRODUCTS_FUSED,)
)
def run(graph: TypedGraph, target: Target) -> bool:
    """Fuse every match; True where there was one."""
    before_run = {*graph.static, *graph.inputs}
    wanted = set(graph.outputs)
    fused: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        products = graph.consumers(node.outputs[0]) if _normalises(graph, node, before_run) else ()
        if 0 < len(products) <= MOST and node.outputs[0] not in wanted and all(_multiplies(n, node) for n in products):
            fused |= {node: [], **{product: [_fused(product, node)] for product in products}}
    return graph.substitute(fused)


def _normalises(graph: TypedGraph, node: Node, before_run: set[str]) -> bool:
    """True for a root mean square norm of float rows, scaled by a vector of `before_run`."""
    op = node.op
    if not isinstance(op, RMSNormalization) or any(node.outputs[1:]) or node.inputs[1] not in before_run:
        return False
    x, gain = (graph.tensor(n) for n in node.inputs)
    if x.dtype.compute != "f32" or gain.dtype.compute != "f32" or not x.rank:
        return False
    return op.reduced(x.shape) == (x.rank - 1,) and gain.shape == x.shape[-1:]


def _multiplies(node: Node, norm: Node) -> bool:
    """True where the rows of a product with packed weights, and nothing else of `node`, are what `norm` gives."""
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

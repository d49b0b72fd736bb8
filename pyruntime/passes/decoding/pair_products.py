"""Fuse two products with packed weights of one input, and the elementwise function of both.

f(x Gᵀ, x Uᵀ), as in SwiGLU and GeGLU. The GPU interleaves the packed rows of G and U once, so that an invocation
computes both results of a column. The products are MatMulNBits with equal attributes, without bias and g_idx, and
without other consumers.
"""

from __future__ import annotations

from dataclasses import replace

from pyruntime.ir import Node, TypedGraph
from pyruntime.kernels import Target
from pyruntime.ops.elementwise.elementwise import Elementwise
from pyruntime.ops.fused.elementwise import FusedElementwise
from pyruntime.ops.fused.paired_product import PairedProduct
from pyruntime.ops.microsoft.products.matmul_nbits import MatMulNBits
from pyruntime.passes.fusion.fuse_elementwise import as_chain
from pyruntime.passes.graph_pass import Fact, graph_pass
from pyruntime.passes.match import Matcher
from pyruntime.passes.quantization.joined_weights import rows_interleaved

__all__ = ["run"]


@graph_pass(requires=(Fact.ELEMENTWISE_FUSED,), ensures=(Fact.PRODUCTS_PAIRED,))
def run(graph: TypedGraph, target: Target) -> bool:
    """Fuse all matches; returns whether there were any."""
    if not any(isinstance(node.op, MatMulNBits) for node in graph.nodes):
        return False
    match = Matcher(graph)
    fused: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        if not isinstance(node.op, Elementwise | FusedElementwise) or node.outputs[0] in graph.static:
            continue
        chain = as_chain(graph, node)
        products = [graph.producer(n) for n in chain.inputs if match.read_once(n)]
        if len(products) == len(chain.inputs) == 2 and not any(node.outputs[1:]):
            gate, values = products
            paired = _paired(graph, chain, gate, values, target.limits.binding_bytes)
            if paired is not None and gate is not None and values is not None:
                fused |= {gate: [], values: [], node: paired}
    return graph.substitute(fused)


def _paired(graph: TypedGraph, chain: Node, gate: Node | None, values: Node | None, limit: int) -> list[Node] | None:
    """Return the nodes that interleave the weights, and the fused node; None if the products do not match."""
    if gate is None or values is None or not isinstance(gate.op, MatMulNBits) or gate.op != values.op:
        return None
    assert isinstance(chain.op, FusedElementwise)
    products = [graph.tensor(n) for n in (*gate.outputs[:1], *values.outputs[:1], chain.outputs[0])]
    if any((p.dtype, p.shape) != (products[0].dtype, products[0].shape) for p in products):
        return None
    sides = [(*n.inputs, "", "", "")[:6] for n in (gate, values)]
    if sides[0][0] != sides[1][0] or any(s[4] or s[5] for s in sides) or bool(sides[0][3]) != bool(sides[1][3]):
        return None
    interleaved = rows_interleaved(graph, [s[1:4] for s in sides], gate.op.N, limit)
    if interleaved is None:
        return None
    nodes, weights = interleaved
    op = PairedProduct(base=replace(gate.op, N=2 * gate.op.N), chain=chain.op)
    return [*nodes, Node(op, (sides[0][0], *weights), chain.outputs, chain.name)]

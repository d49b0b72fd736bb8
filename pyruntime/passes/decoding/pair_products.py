"""Two products with packed weights of one input, and the elementwise function that joins them, become one.

f(x Gᵀ, x Uᵀ), as of SwiGLU and GeGLU: the rows of G and U are set in turn (on the GPU, once; they stay packed), so that
the kernel has both results of a column at hand. requires: `fuse_elementwise` has run. ensures: no such function of two
MatMulNBits alike, without bias and group index, whose products nobody else reads.
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
from pyruntime.passes.quantization.joined_weights import rows_in_turn

__all__ = ["run"]


def run(graph: TypedGraph, target: Target) -> bool:
    """Fuse every match; True where there was one."""
    if not any(isinstance(node.op, MatMulNBits) for node in graph.nodes):
        return False
    makers, readers = graph.producers(), graph.consumers()
    wanted = set(graph.outputs)
    gone: set[int] = set()
    made: list[Node] = []
    for node in graph.nodes:
        fused = None
        if isinstance(node.op, Elementwise | FusedElementwise) and node.outputs[0] not in graph.static:
            chain = as_chain(graph, node)
            products = [makers.get(n) for n in chain.inputs]
            once = all(len(readers.get(n, ())) == 1 and n not in wanted for n in chain.inputs)
            if once and len(products) == 2 and not any(node.outputs[1:]):
                fused = _paired(graph, chain, products[0], products[1])
            if fused is not None:
                gone.update(id(p) for p in products)
        made += fused or [node]
    graph.nodes = [n for n in made if id(n) not in gone]
    return bool(gone)


def _paired(graph: TypedGraph, chain: Node, gate: Node | None, values: Node | None) -> list[Node] | None:
    """The nodes that join the weights, and the fused one."""
    if gate is None or values is None or not isinstance(gate.op, MatMulNBits) or gate.op != values.op:
        return None
    assert isinstance(chain.op, FusedElementwise)
    products = [graph.tensor(n) for n in (*gate.outputs[:1], *values.outputs[:1], chain.outputs[0])]
    if any((p.dtype, p.shape) != (products[0].dtype, products[0].shape) for p in products):
        return None
    sides = [(*n.inputs, "", "", "")[:6] for n in (gate, values)]
    if sides[0][0] != sides[1][0] or any(s[4] or s[5] for s in sides) or bool(sides[0][3]) != bool(sides[1][3]):
        return None
    joined = rows_in_turn(graph, [s[1:4] for s in sides], gate.op.N)
    if joined is None:
        return None
    nodes, weights = joined
    op = PairedProduct(base=replace(gate.op, N=2 * gate.op.N), chain=chain.op)
    return [*nodes, Node(op, (sides[0][0], *weights), chain.outputs, chain.name)]

"""Fuse a matrix product with an epilogue and the normalization of its rows.

The kernel that reduces the partial sums of a split-K product also normalizes, which saves a dispatch for narrow
products with large K. The norm is a LayerNormalization or RMSNormalization over the last dimension of a float32 or
float16 product, with constant scale and bias; a Reshape that keeps the rows may be between. Other consumers of the
product read output 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pyruntime.ir import DType, Node, TensorType, TypedGraph
from pyruntime.kernels import Target
from pyruntime.ops.fused.with_epilogue import WithEpilogue
from pyruntime.ops.fused.with_norm import WithNorm
from pyruntime.passes.graph_pass import Fact, node_pass
from pyruntime.passes.match import Matcher

__all__ = ["run"]


@node_pass(requires=(Fact.EPILOGUES_FUSED,), ensures=(Fact.PRODUCT_NORMS_FUSED,))
def run(match: Matcher, target: Target, node: Node) -> dict[Node, list[Node]] | None:
    """Replace the product `node` and the norm of its rows by one node."""
    found = next(_norms(match.graph, node), None)
    if found is None:
        return None
    norm, between = found
    kept = _read_elsewhere(match.graph, node, norm, between)
    gone = [norm] if between is None or kept else [norm, between]
    return {node: _fused(match.graph, node, norm, between, kept), **{n: [] for n in gone}}


def _norms(graph: TypedGraph, node: Node) -> Iterator[tuple[Node, Node | None]]:
    """Yield normalizations of the rows of the product `node`, and the Reshape in between, if any."""
    base = node.op
    if not isinstance(base, WithEpilogue) or base.base.op_type not in ("MatMul", "Gemm"):
        return
    product = graph.tensor(node.outputs[0])
    for reader in graph.consumers(node.outputs[0]):
        if _fits(graph, node.outputs[0], reader):
            yield reader, None
        elif reader.op.op_type == "Reshape" and not reader.op.domain and reader.inputs[0] == node.outputs[0]:
            shape = graph.tensor(reader.outputs[0]).shape
            if reader.inputs[1] not in graph.static:
                continue
            if shape and product.shape and shape[-1] == product.shape[-1]:
                after = graph.consumers(reader.outputs[0])
                yield from ((n, reader) for n in after if _fits(graph, reader.outputs[0], n))


def _read_elsewhere(graph: TypedGraph, node: Node, norm: Node, between: Node | None) -> bool:
    """Whether the product has other consumers than the norm."""
    names = [n.outputs[0] for n in (node, between) if n is not None]
    return any(name in graph.outputs or graph.reads(name) > 1 for name in names)


def _fused(graph: TypedGraph, node: Node, norm: Node, between: Node | None, kept: bool) -> list[Node]:
    """Return `node` and `norm` as one node, and the Reshape of its result, if any."""
    base = node.op
    assert isinstance(base, WithEpilogue)
    form: Any = replace(norm.op, present=(True,))  # type: ignore[type-var]
    op = WithNorm(base=base, count=len(node.inputs), norm=form, present=(True, kept))
    normal = norm.outputs[0]
    after: list[Node] = []
    if between is not None:
        kind = graph.tensor(node.outputs[0])
        inner = graph.add_value(f"{normal}.before_reshape", TensorType(graph.tensor(normal).dtype, kind.shape))
        after = [Node(between.op, (inner, *between.inputs[1:]), (normal,), between.name)]
        normal = inner
    outputs = (normal, node.outputs[0] if kept else "")
    return [Node(op, (*node.inputs, *filter(None, norm.inputs[1:])), outputs, node.name), *after]


def _fits(graph: TypedGraph, product: str, norm: Node) -> bool:
    """Whether `norm` normalizes the rows of `product` with constant weights."""
    op = norm.op
    form: Any = op
    if op.domain or op.op_type not in ("LayerNormalization", "RMSNormalization") or any(norm.outputs[1:]):
        return False
    weights = [n for n in norm.inputs[1:] if n]
    if norm.inputs[0] != product or not all(n in graph.static for n in weights):
        return False
    x = graph.tensor(product)
    kinds = [graph.types[n] for n in (*weights, norm.outputs[0])]
    known = x.dtype in (DType.FLOAT, DType.FLOAT16)
    if not known or not all(isinstance(k, TensorType) and k.dtype is x.dtype for k in kinds):
        return False
    return form.reduced(x.shape) == (x.rank - 1,) and all(form.rows_share(x, graph.tensor(n)) for n in weights)

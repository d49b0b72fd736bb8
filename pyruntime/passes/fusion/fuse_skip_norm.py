"""Fuse an addition and the normalization of its rows; other consumers of the sum read output 3.

The norm is a LayerNormalization or RMSNormalization over the last dimension, with static vectors. The sum has two
terms: one with its shape, and one with its shape, its trailing dimensions, or a vector. With three terms, one is a
vector. Additions to products are already epilogues.
"""

from __future__ import annotations

from typing import Any

from pyruntime.ir import Node, TypedGraph
from pyruntime.kernels import Target
from pyruntime.ops.elementwise.elementwise import Elementwise
from pyruntime.ops.fused.elementwise import FusedElementwise
from pyruntime.ops.normalization.skip_norm import SkipNorm, follows
from pyruntime.passes.fusion.fuse_elementwise import as_chain
from pyruntime.passes.graph_pass import Fact, node_pass
from pyruntime.passes.match import Matcher

__all__ = ["run"]


@node_pass(requires=(Fact.ELEMENTWISE_FUSED, Fact.PRODUCT_NORMS_FUSED), ensures=(Fact.SKIP_NORMS_FUSED,))
def run(match: Matcher, target: Target, node: Node) -> dict[Node, list[Node]] | None:
    """Replace the addition `node` and the norm after it by one node."""
    graph, total = match.graph, node.outputs[0]
    terms = _terms(graph, node)
    readers = graph.consumers(total) if terms is not None else ()
    norm = next((n for n in readers if _normalizes(graph, n, total)), None)
    if terms is None or norm is None:
        return None
    return {node: [_fused(node, norm, terms, len(readers) > 1 or total in match.wanted)], norm: []}


def _terms(graph: TypedGraph, node: Node) -> tuple[str, str, str] | None:
    """Return (x, skip, bias) that `node` adds, "" for absent ones, or None for other nodes."""
    if not isinstance(node.op, Elementwise | FusedElementwise) or node.outputs[0] in graph.static:
        return None
    if isinstance(node.op, Elementwise) and (node.op.op_type != "Add" or len(set(node.inputs)) < 2):
        return None
    total = graph.tensor(node.outputs[0])
    if not total.rank or not total.size or total.dtype.compute != "f32":
        return None
    chain = as_chain(graph, node)
    steps = chain.op.steps if isinstance(chain.op, FusedElementwise) else ()
    leaves = [i for step in steps for i in step.inputs if not isinstance(i, int) or i >= 0]
    if any(s.op.op_type != "Add" for s in steps) or sorted(leaves, key=str) != list(range(len(chain.inputs))):
        return None
    return _roles(graph, list(chain.inputs), total.shape)


def _roles(graph: TypedGraph, names: list[str], shape: tuple[int, ...]) -> tuple[str, str, str] | None:
    """Return the terms of a sum as (x, skip, bias), or None."""
    x = next((n for n in names if graph.tensor(n).shape == shape), "")
    if not x:
        return None
    names.remove(x)
    bias = next((n for n in names if graph.tensor(n).shape == shape[-1:]), "")
    if bias:
        names.remove(bias)
    if len(names) > 1 or not all(follows(graph.tensor(n).shape, shape) for n in names):
        return None
    return x, names[0] if names else "", bias


def _normalizes(graph: TypedGraph, node: Node, total: str) -> bool:
    """Whether `node` normalizes the rows of `total` with static vectors."""
    op: Any = node.op
    if op.domain or op.op_type not in ("LayerNormalization", "RMSNormalization") or any(node.outputs[1:]):
        return False
    kind, weights = graph.tensor(total), [n for n in node.inputs[1:] if n]
    if node.inputs[0] != total or total in weights or not all(map(graph.is_given, weights)):
        return False
    if graph.tensor(node.outputs[0]).dtype.compute != "f32" or op.reduced(kind.shape) != (kind.rank - 1,):
        return False
    return all(graph.tensor(n).shape == kind.shape[-1:] for n in weights)


def _fused(node: Node, norm: Node, terms: tuple[str, str, str], kept: bool) -> Node:
    """Return `node` and `norm` as one node."""
    x, skip, bias = terms
    op: Any = norm.op
    fused = SkipNorm(epsilon=op.epsilon, rms=int(op.op_type == "RMSNormalization"), present=(True, False, False, kept))
    scale, shift = (*norm.inputs[1:], "")[:2]
    inputs = [x, scale, shift, skip, bias]
    while not inputs[-1]:
        inputs.pop()
    outputs = (norm.outputs[0], "", "", node.outputs[0]) if kept else (norm.outputs[0],)
    return Node(fused, tuple(inputs), outputs, norm.name or node.name)

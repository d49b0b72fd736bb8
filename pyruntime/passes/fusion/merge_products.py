"""Merge query, key and value projections, matrix products of one input by several constants, into one product.

[x A, x B, x C] = split(x [A B C]); biases are merged, too. The split is free where attention reads it as views, so only
products followed by reshapes into attention heads (and optionally norms) are merged: MatMul, and Gemm without factors,
which optimizers write between two reshapes. The GPU concatenates the weights once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyruntime.ir import Node, TypedGraph
from pyruntime.kernels import Target
from pyruntime.ops.registry import newest
from pyruntime.passes.fusion.projections import apart, leads_to_heads, merge_groups
from pyruntime.passes.graph_pass import Fact, graph_pass
from pyruntime.passes.match import Matcher
from pyruntime.passes.writer import joined

__all__ = ["run"]


@dataclass(frozen=True, slots=True)
class _Projection:
    """x W [+ b]: product, addition (or None), names of bias and result; `turned`: W is transposed."""

    product: Node
    addition: Node | None
    bias: str
    result: str
    turned: bool = False

    @property
    def nodes(self) -> list[Node]:
        """The product and, if present, the addition."""
        return [self.product, *([self.addition] if self.addition is not None else [])]


@graph_pass(requires=(Fact.NO_DEAD_NODES,))
def run(graph: TypedGraph, target: Target) -> bool:
    """Merge all groups; returns whether there were any."""
    match = Matcher(graph)
    groups: dict[tuple[str, str, bool], list[_Projection]] = {}
    for node in graph.nodes:
        projection = _projection(graph, match, node)
        if projection:
            key = node.inputs[0], node.op.op_type, projection.turned
            groups.setdefault(key, []).append(projection)
    limit = target.limits.binding_bytes
    return merge_groups(graph, groups.values(), lambda p: p.nodes, lambda group: _merged(graph, group), limit)


def _projection(graph: TypedGraph, match: Matcher, node: Node) -> _Projection | None:
    op: Any = node.op
    gemm = op.op_type == "Gemm"
    if op.domain or op.op_type not in ("MatMul", "Gemm") or node.inputs[1] not in graph.static:
        return None
    if gemm and (op.alpha != 1.0 or op.beta != 1.0 or op.transA):
        return None
    weight, y = graph.tensor(node.inputs[1]), graph.tensor(node.outputs[0])
    if weight.rank != 2 or y.rank < 2 or node.inputs[0] in graph.static or not y.dtype.is_float or y.dtype.is_wide:
        return None
    turned = bool(gemm and op.transB)
    bias, result = node.inputs[2] if len(node.inputs) > 2 else "", node.outputs[0]
    addition = match.only_consumer(result, "Add") if not bias else None
    if addition is not None:
        bias, result = match.other(addition, result), addition.outputs[0]
    if bias and (bias not in graph.static or graph.tensor(bias).shape != (weight.shape[0 if turned else 1],)):
        return None
    return _Projection(node, addition, bias, result, turned) if leads_to_heads(match, result) else None


def _merged(graph: TypedGraph, projections: Sequence[_Projection]) -> list[Node]:
    first = projections[0].product
    y = graph.tensor(first.outputs[0])
    columns = 0 if projections[0].turned else 1
    widths = [graph.tensor(p.product.inputs[1]).shape[columns] for p in projections]
    shape = (*y.shape[:-1], sum(widths))
    weights = joined(graph, [p.product.inputs[1] for p in projections], columns)
    wide = graph.add_value(f"{first.outputs[0]}.merged", y.with_shape(*shape))
    nodes = [weights, Node(first.op, (first.inputs[0], weights.outputs[0]), (wide,), first.name)]
    if any(p.bias for p in projections):
        pairs = zip(projections, widths, strict=True)
        biases = [p.bias or graph.add_constant(np.zeros(w, y.dtype.numpy), y.dtype, "zeros") for p, w in pairs]
        bias = joined(graph, biases, 0)
        biased = graph.add_value(f"{first.outputs[0]}.biased", y.with_shape(*shape))
        nodes += [bias, Node(newest("Add"), (wide, bias.outputs[0]), (biased,), f"{first.name}.bias")]
        wide = biased
    return [*nodes, apart(graph, wide, widths, [p.result for p in projections], f"{first.name}.split")]

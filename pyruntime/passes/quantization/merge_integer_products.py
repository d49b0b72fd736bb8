"""Merge quantized query, key and value projections of one input into a single integer product.

    Cast(x A) (s a) + c, Cast(x B) (s b) + d  =  split(Cast(x [A B]) (s [a b]) + [c d]),  x A, x B: MatMulInteger

Like `merge_products`, for graphs written by onnxruntime's dynamic quantization: s is the scale of x, a and b are the
scales of the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pyruntime.ir import Array, DType, Node, TensorType, TypedGraph
from pyruntime.kernels import Target
from pyruntime.ops.registry import newest
from pyruntime.passes.fusion.projections import apart, leads_to_heads, merge_groups
from pyruntime.passes.graph_pass import Fact, graph_pass
from pyruntime.passes.match import Matcher
from pyruntime.passes.quantization.dequantized import value
from pyruntime.passes.writer import joined

__all__ = ["run"]


@dataclass(frozen=True, slots=True)
class _Projection:
    """A product and the nodes up to `result`, with the scales of x and of the weights, zero points and bias."""

    nodes: tuple[Node, ...]
    x_scale: str
    weight_scale: Array
    zero: Array
    bias: Array
    result: str

    @property
    def product(self) -> Node:
        """The MatMulInteger node."""
        return self.nodes[0]


@graph_pass(requires=(Fact.NO_DEAD_NODES,), breaks=(Fact.NO_DEAD_NODES,))
def run(graph: TypedGraph, target: Target) -> bool:
    """Merge every group; return whether there was one."""
    match = Matcher(graph)
    groups: dict[tuple[object, ...], list[_Projection]] = {}
    for node in graph.nodes:
        found = _projection(graph, match, node)
        if found is not None:
            kinds = graph.tensor(node.inputs[1]).dtype, found.x_scale, *node.inputs[:1], *node.inputs[2:3]
            groups.setdefault(kinds, []).append(found)
    limit = target.limits.binding_bytes
    return merge_groups(graph, groups.values(), lambda p: p.nodes, lambda group: _merged(graph, group), limit)


def _projection(graph: TypedGraph, match: Matcher, node: Node) -> _Projection | None:
    if node.op.domain or node.op.op_type != "MatMulInteger" or node.inputs[1] not in graph.static:
        return None
    weight, y = graph.tensor(node.inputs[1]), graph.tensor(node.outputs[0])
    if weight.rank != 2 or y.rank < 2 or node.inputs[0] in graph.static:
        return None
    width = weight.shape[1]
    cast = match.only_consumer(node.outputs[0], "Cast")
    scaling = match.only_consumer(cast.outputs[0], "Mul") if cast is not None else None
    if cast is None or scaling is None or graph.tensor(cast.outputs[0]).dtype is not DType.FLOAT:
        return None
    scales = _scales(graph, match, match.other(scaling, cast.outputs[0]), width)
    zero_name = node.inputs[3] if len(node.inputs) > 3 else ""
    zero = _vector(graph, zero_name, width) if zero_name else np.zeros(width, weight.dtype.numpy)
    addition = match.only_consumer(scaling.outputs[0], "Add")
    bias, result = np.zeros(width, np.float32), scaling.outputs[0]
    if addition is not None:
        given = _vector(graph, match.other(addition, result), width)
        if given is None:
            return None
        bias, result = given, addition.outputs[0]
    if scales is None or zero is None or not leads_to_heads(match, result):
        return None
    nodes = (node, cast, scaling, *([addition] if addition is not None else []))
    return _Projection(nodes, *scales, zero, bias, result)


def _scales(graph: TypedGraph, match: Matcher, name: str, width: int) -> tuple[str, Array] | None:
    """Split the scale `name` into the name of x's scale ("" if `name` is constant) and the weight scales."""
    if name in graph.static:
        known = _vector(graph, name, width)
        return None if known is None else ("", known)
    node = match.producer(name, "Mul")
    if node is None:
        return None
    for i in (0, 1):
        weights = _vector(graph, node.inputs[1 - i], width)
        if weights is not None and graph.tensor(node.inputs[i]).size == 1:
            return node.inputs[i], weights
    return None


def _vector(graph: TypedGraph, name: str, width: int) -> Array | None:
    """Return a static scalar or vector as one value per column, None for other values."""
    found = value(graph, name) if graph.tensor(name).size in (1, width) else None
    if found is None or graph.tensor(name).rank > 1:
        return None
    return np.broadcast_to(found.reshape(-1), (width,))


def _merged(graph: TypedGraph, projections: Sequence[_Projection]) -> list[Node]:
    product, y = projections[0].product, graph.tensor(projections[0].result)
    widths = [p.bias.size for p in projections]
    matrix = joined(graph, [p.product.inputs[1] for p in projections], 1)
    kind = graph.tensor(matrix.outputs[0])
    zeros = np.concatenate([p.zero for p in projections])
    zero = zeros[:1].reshape(()) if (zeros == zeros[0]).all() else zeros
    inputs = [product.inputs[0], matrix.outputs[0], product.inputs[2] if len(product.inputs) > 2 else ""]
    inputs.append(graph.add_constant(zero, kind.dtype, "zeros") if zeros.any() else "")
    while not inputs[-1]:
        inputs.pop()
    wide = (*y.shape[:-1], sum(widths))
    sums = graph.add_value(f"{projections[0].result}.sums", TensorType(DType.INT32, wide))
    real, scaled, whole = (
        graph.add_value(f"{projections[0].result}.merged", TensorType(DType.FLOAT, wide)) for _ in range(3)
    )
    weights = graph.add_constant(np.concatenate([p.weight_scale for p in projections]), DType.FLOAT, "scales")
    scale = weights
    factor: list[Node] = []
    if projections[0].x_scale:
        scale = graph.add_value(weights, TensorType(DType.FLOAT, (sum(widths),)))
        factor = [Node(newest("Mul"), (projections[0].x_scale, weights), (scale,), product.name)]
    bias = graph.add_constant(np.concatenate([p.bias for p in projections]), DType.FLOAT, "bias")
    name = product.name
    return [
        matrix,
        Node(newest("MatMulInteger"), tuple(inputs), (sums,), name),
        Node(newest("Cast", to=DType.FLOAT.code), (sums,), (real,), name),
        *factor,
        Node(newest("Mul"), (real, scale), (scaled,), name),
        Node(newest("Add"), (scaled, bias), (whole,), name),
        apart(graph, whole, widths, [p.result for p in projections], name),
    ]

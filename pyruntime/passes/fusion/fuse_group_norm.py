"""Fuse GroupNormalization as torch exports it into one operator.

    Reshape [N, G, -1], InstanceNormalization with scale 1 and bias 0, Reshape back, Mul by [C, 1, ..], Add [C, 1, ..]

Intermediate values must have no other consumers. Source: Wu and He, 2018.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.ir import Array, DType, Node, TensorType, TypedGraph
from pyruntime.kernels import Target
from pyruntime.ops.registry import newest
from pyruntime.passes.graph_pass import Fact, node_pass
from pyruntime.passes.match import Matcher

__all__ = ["run"]


@node_pass(breaks=(Fact.NO_DEAD_NODES,))
def run(match: Matcher, target: Target, node: Node) -> dict[Node, list[Node]] | None:
    """Replace the last node of the pattern by a GroupNormalization."""
    graph = match.graph
    if node.op.op_type != "InstanceNormalization" or node.op.domain or node.outputs[0] in graph.static:
        return None
    before = match.producer(node.inputs[0], "Reshape")
    after = match.only_consumer(node.outputs[0], "Reshape")
    if before is None or after is None or not _is_plain(graph, node):
        return None
    x = graph.tensor(before.inputs[0])
    groups = graph.tensor(node.inputs[0])
    if x.rank < 3 or not x.size or groups.rank != 3 or groups.shape[0] != x.shape[0] or x.shape[1] % groups.shape[1]:
        return None
    if graph.tensor(after.outputs[0]).shape != x.shape:
        return None
    mul = match.only_consumer(after.outputs[0], "Mul")
    scale = _channels(graph, match, mul, after.outputs[0], x)
    if mul is None or scale is None:
        return None
    add = match.only_consumer(mul.outputs[0], "Add")
    bias = _channels(graph, match, add, mul.outputs[0], x)
    last = add if add is not None and bias is not None else mul
    op: Any = node.op
    fused = newest("GroupNormalization", num_groups=groups.shape[1], epsilon=op.epsilon)
    vectors = (scale, bias if bias is not None else np.zeros_like(scale))
    names = [graph.add_constant(v, x.dtype, f"{last.outputs[0]}.{n}") for v, n in zip(vectors, "sb", strict=True)]
    return {last: [Node(fused, (before.inputs[0], *names), last.outputs, last.name)]}


def _is_plain(graph: TypedGraph, node: Node) -> bool:
    """Whether scale is 1 and bias 0 everywhere, for float32 and float16."""
    scale, bias = node.inputs[1:3]
    if scale not in graph.static or bias not in graph.static:
        return False
    kind = graph.tensor(node.inputs[0]).dtype
    plain = bool((graph.tensor(scale).value() == 1).all() and (graph.tensor(bias).value() == 0).all())
    return plain and kind in (DType.FLOAT, DType.FLOAT16)


def _channels(graph: TypedGraph, match: Matcher, node: Node | None, result: str, x: TensorType) -> Array | None:
    """Return the static operand of `node` as a vector, if it has one number per channel of x."""
    if node is None:
        return None
    name = match.other(node, result)
    kind = graph.types.get(name)
    if not isinstance(kind, TensorType) or name not in graph.static or kind.rank > x.rank:
        return None
    channels = (1, x.shape[1], *(1,) * (x.rank - 2))
    return kind.value().reshape(-1) if (1,) * (x.rank - kind.rank) + kind.shape == channels else None

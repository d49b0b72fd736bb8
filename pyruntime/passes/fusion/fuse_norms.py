"""Normalizations written out by exporters become LayerNormalization and RMSNormalization, one kernel each.

    RMS:    x * (1 / sqrt(mean(x^2) + e)) [* w]                          torch's nn.RMSNorm, llama
    layer:  d * w + b, d = (x - mean(x)) / sqrt(mean(d0^2) + e), d0 = x - mean(x)      torch 1, TensorFlow

Means are over the last dimension; x^2 may be Pow or Mul, 1 / sqrt Reciprocal or Div; w, b and e are constants.
Source: Ba et al., 2016; Zhang and Sennrich, 2019.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.ir import Node, TypedGraph
from pyruntime.kernels import Target
from pyruntime.ops.registry import newest
from pyruntime.passes.graph_pass import Fact, graph_pass
from pyruntime.passes.match import Matcher

__all__ = ["run"]


@graph_pass(ensures=(Fact.NORMS_FUSED,), breaks=(Fact.NO_DEAD_NODES,))
def run(graph: TypedGraph, target: Target) -> bool:
    """Replace every match; True where there was one."""
    match = Matcher(graph)
    fused: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        if node.op.domain or node.op.op_type not in ("Mul", "Div") or node.outputs[0] in graph.static:
            continue
        found = _normalised(graph, match, node)
        if found is not None:
            x, epsilon, centred = found
            last, norm = _with_weights(graph, match, node, x, epsilon, centred)
            fused[last] = [norm]
    return graph.substitute(fused)


def _normalised(graph: TypedGraph, match: Matcher, node: Node) -> tuple[str, float, bool] | None:
    """(x, epsilon, mean subtracted) where `node` is x, or x minus its mean, over the root of its mean square."""
    if node.op.op_type == "Div":
        pairs = [(node.inputs[0], match.producer(node.inputs[1], "Sqrt"))]
    else:
        pairs = [(node.inputs[1 - i], _root(match, node.inputs[i])) for i in (0, 1)]
    for value, root in pairs:
        if root is None:
            continue
        added = match.producer(root.inputs[0], "Add")
        pair = match.with_scalar(added) if added else None
        mean = match.producer(pair[0], "ReduceMean") if pair else None
        if pair is None or mean is None or not _over_last(graph, mean) or _squared(match, mean.inputs[0]) != value:
            continue
        if graph.tensor(value).dtype.is_wide:
            continue
        return _centred(graph, match, value, pair[1])
    return None


def _root(match: Matcher, name: str) -> Node | None:
    """The Sqrt whose reciprocal `name` is."""
    node = match.producer(name, "Reciprocal", "Div")
    if node is None or (node.op.op_type == "Div" and match.scalar(node.inputs[0]) != 1):
        return None
    return match.producer(node.inputs[-1], "Sqrt")


def _squared(match: Matcher, name: str) -> str | None:
    """The value whose square `name` is."""
    node = match.producer(name, "Pow", "Mul")
    if node is None:
        return None
    if node.op.op_type == "Pow":
        return node.inputs[0] if match.scalar(node.inputs[1]) == 2 else None
    return node.inputs[0] if node.inputs[0] == node.inputs[1] else None


def _over_last(graph: TypedGraph, mean: Node) -> bool:
    """True for a mean over the last dimension that keeps it."""
    op: Any = mean.op
    x, y = graph.tensor(mean.inputs[0]), graph.tensor(mean.outputs[0])
    axes = getattr(op, "axes", None)
    if len(mean.inputs) > 1 and mean.inputs[1]:
        if mean.inputs[1] not in graph.static:
            return False
        axes = graph.tensor(mean.inputs[1]).ints()
    last = axes is not None and len(axes) == 1 and axes[0] % x.rank == x.rank - 1
    return last and y.rank == x.rank


def _centred(graph: TypedGraph, match: Matcher, value: str, epsilon: float) -> tuple[str, float, bool]:
    """Whether `value` is some x minus its mean."""
    sub = match.producer(value, "Sub")
    mean = match.producer(sub.inputs[1], "ReduceMean") if sub else None
    if sub is not None and mean is not None and mean.inputs[0] == sub.inputs[0] and _over_last(graph, mean):
        return sub.inputs[0], epsilon, True
    return value, epsilon, False


def _with_weights(
    graph: TypedGraph, match: Matcher, node: Node, x: str, epsilon: float, centred: bool
) -> tuple[Node, Node]:
    """The last node of the pattern, weight and bias included, and the operator in its place."""
    kind = graph.tensor(x)
    last, weight, bias = node, "", ""
    for op_type in ("Mul", "Add") if centred else ("Mul",):
        after = match.only_consumer(last.outputs[0], op_type)
        vector = match.other(after, last.outputs[0]) if after else ""
        if after is None or vector not in graph.static or graph.tensor(vector).shape != kind.shape[-1:]:
            break
        last = after
        weight, bias = (vector, bias) if op_type == "Mul" else (weight, vector)
    if not weight:
        weight = graph.add_constant(np.ones(kind.shape[-1:], kind.dtype.numpy), kind.dtype, f"{x}.ones")
    name = "LayerNormalization" if centred else "RMSNormalization"
    op = newest(name, axis=-1, epsilon=epsilon)
    inputs = (x, weight, bias) if bias else (x, weight)
    return last, Node(op, inputs, last.outputs, last.name)

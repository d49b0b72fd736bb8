"""Fuse normalizations that exporters decompose into LayerNormalization and RMSNormalization.

    RMS:    x * (1 / sqrt(mean(x^2) + e)) [* w]                          torch's nn.RMSNorm, llama
    layer:  d * w + b, d = (x - mean(x)) / sqrt(mean(d0^2) + e), d0 = x - mean(x)      torch 1, TensorFlow

Means are over the last dimension; x^2 may be Pow or Mul, 1 / sqrt Reciprocal or Div; w, b and e are constants. Source:
Ba et al., 2016; Zhang and Sennrich, 2019.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.ir import Node, TypedGraph
from pyruntime.kernels import Target
from pyruntime.ops.registry import newest
from pyruntime.passes.graph_pass import Fact, node_pass
from pyruntime.passes.match import Matcher, either, made_by

__all__ = ["run"]

_MEAN_SQUARE = made_by("ReduceMean", either(made_by("Pow", "d", 2.0), made_by("Mul", "d", "d")), name="mean")
_ROOT = made_by("Sqrt", made_by("Add", _MEAN_SQUARE, "epsilon"))
_NORM = either(
    made_by("Div", "d", _ROOT), made_by("Mul", "d", either(made_by("Reciprocal", _ROOT), made_by("Div", 1.0, _ROOT)))
)
_CENTRED = made_by("Sub", "x", made_by("ReduceMean", "x", name="mean"))


@node_pass(ensures=(Fact.NORMS_FUSED,), breaks=(Fact.NO_DEAD_NODES,))
def run(match: Matcher, target: Target, node: Node) -> dict[Node, list[Node]] | None:
    """Replace the last node of a norm by one operator."""
    graph = match.graph
    if node.op.domain or node.op.op_type not in ("Mul", "Div") or node.outputs[0] in graph.static:
        return None
    found = _normalized(graph, match, node)
    return None if found is None else _with_weights(graph, match, node, *found)


def _normalized(graph: TypedGraph, match: Matcher, node: Node) -> tuple[str, float, bool] | None:
    """Return (x, epsilon, mean subtracted) if `node` is x, or x minus its mean, divided by its root mean square."""
    for found in match.bind(node.outputs[0], _NORM):
        epsilon = match.scalar(found["epsilon"])
        if epsilon is None or not _over_last(graph, found["mean"]) or graph.tensor(found["d"]).dtype.is_wide:
            continue
        centred = next(match.bind(found["d"], _CENTRED), None)
        if centred is not None and _over_last(graph, centred["mean"]):
            return centred["x"], epsilon, True
        return found["d"], epsilon, False
    return None


def _over_last(graph: TypedGraph, name: str) -> bool:
    """Whether a mean is over the last dimension and keeps it."""
    mean = graph.producer(name)
    assert mean is not None
    op: Any = mean.op
    x, y = graph.tensor(mean.inputs[0]), graph.tensor(mean.outputs[0])
    axes = getattr(op, "axes", None)
    if len(mean.inputs) > 1 and mean.inputs[1]:
        if mean.inputs[1] not in graph.static:
            return False
        axes = graph.tensor(mean.inputs[1]).ints()
    last = axes is not None and len(axes) == 1 and axes[0] % x.rank == x.rank - 1
    return last and y.rank == x.rank


def _with_weights(
    graph: TypedGraph, match: Matcher, node: Node, x: str, epsilon: float, centred: bool
) -> dict[Node, list[Node]]:
    """Return the replacement of the last node of the pattern, including weight and bias."""
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
    return {last: [Node(op, inputs, last.outputs, last.name)]}

"""Common subexpressions: equal operators on the same inputs are computed once.

Exporters write the numbers an operator needs as constants of its own, so small constants of equal bytes are one here.
requires: topological order.
ensures: no two pure nodes with equal operator and inputs, unless an output is a graph output.
"""

from __future__ import annotations

from dataclasses import replace

from pyruntime.ir import DType, Node, TensorType, TypedGraph
from pyruntime.kernels import Target
from pyruntime.ops.base import Op

__all__ = ["run"]

SMALL = 256
"""Bytes up to which integers are compared; of floats only single ones are: weights may not be there yet."""


def run(graph: TypedGraph, target: Target) -> bool:
    """Merge duplicates; True where there were any."""
    renamed = _equal_constants(graph)
    first: dict[tuple[object, tuple[str, ...]], Node] = {}
    kept: list[Node] = []
    wanted = set(graph.outputs)
    for node in graph.nodes:
        inputs = tuple(renamed.get(n, n) for n in node.inputs)
        if inputs != node.inputs:
            node = replace(node, inputs=inputs)
        op = node.op
        assert isinstance(op, Op)
        if not op.pure or wanted.intersection(node.outputs):
            kept.append(node)
            continue
        twin = first.setdefault((op, inputs), node)
        if twin is node:
            kept.append(node)
        else:
            renamed.update({a: b for a, b in zip(node.outputs, twin.outputs, strict=True) if a})
    changed = len(kept) < len(graph.nodes)
    graph.nodes = kept
    return changed


def _equal_constants(graph: TypedGraph) -> dict[str, str]:
    """Small constants whose bytes another one in front of them has, and that one."""
    renamed: dict[str, str] = {}
    first: dict[tuple[object, ...], str] = {}
    written = [n.outputs[0] for n in graph.nodes if n.op.op_type == "Constant" and not n.op.domain]
    for name in (*graph.constants, *written):
        kind = graph.types[name]
        if not isinstance(kind, TensorType) or name not in graph.static or kind.dtype is DType.STRING:
            continue
        if kind.nbytes <= SMALL and (kind.size == 1 or not kind.dtype.is_float):
            twin = first.setdefault((kind.dtype, kind.shape, kind.value().tobytes()), name)
            if twin != name:
                renamed[name] = twin
    return renamed

"""Common subexpressions: equal operators on the same inputs are computed once.

Exporters write the numbers an operator needs as constants of its own, so small constants of equal bytes are one here.
requires: topological order.
ensures: no two pure nodes with equal operator and inputs, unless an output is a graph output.
"""

from __future__ import annotations

from pyruntime.ir import DType, Node, TensorType, TypedGraph
from pyruntime.kernels import Target
from pyruntime.ops.base import Op

__all__ = ["run"]

SMALL = 256
"""Bytes up to which integers are compared; of floats only single ones are: weights may not be there yet."""


def run(graph: TypedGraph, target: Target) -> bool:
    """Merge duplicates; True where there were any."""
    _merge_constants(graph)
    first: dict[tuple[object, tuple[str, ...]], Node] = {}
    twins: list[Node] = []
    wanted = set(graph.outputs)
    for node in graph.nodes:
        op = node.op
        assert isinstance(op, Op)
        if not op.pure or wanted.intersection(node.outputs):
            continue
        twin = first.setdefault((op, node.inputs), node)
        if twin is not node:
            twins.append(node)
            for name, same in zip(node.outputs, twin.outputs, strict=True):
                if name:
                    graph.replace_all_uses(name, same)
    return graph.remove(twins)


def _merge_constants(graph: TypedGraph) -> None:
    """Let consumers of a small constant read the first one that has the same bytes."""
    first: dict[tuple[object, ...], str] = {}
    written = [n.outputs[0] for n in graph.nodes if n.op.op_type == "Constant" and not n.op.domain]
    for name in (*graph.constants, *written):
        kind = graph.types[name]
        if not isinstance(kind, TensorType) or name not in graph.static or kind.dtype is DType.STRING:
            continue
        if kind.nbytes <= SMALL and (kind.size == 1 or not kind.dtype.is_float):
            twin = first.setdefault((kind.dtype, kind.shape, kind.value().tobytes()), name)
            if twin != name:
                graph.replace_all_uses(name, twin)

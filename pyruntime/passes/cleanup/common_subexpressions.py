"""Common-subexpression elimination: compute equal operators on the same inputs once.

Exporters give each operator separate constants, so small constants with equal bytes are merged, too. Nodes that produce
graph outputs are not merged.
"""

from __future__ import annotations

from pyruntime.ir import DType, Node, TensorType, TypedGraph
from pyruntime.kernels import Target
from pyruntime.ops.base import Op
from pyruntime.passes.graph_pass import Fact, graph_pass

__all__ = ["run"]

SMALL = 256
"""Maximum bytes of integer constants to compare. Float constants must be scalars, since weights may not be loaded yet.
"""


@graph_pass(breaks=(Fact.NO_DEAD_NODES,))
def run(graph: TypedGraph, target: Target) -> bool:
    """Merge duplicates; returns whether there were any."""
    changed = _merge_constants(graph)
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
    return graph.remove(twins) or changed


def _merge_constants(graph: TypedGraph) -> bool:
    """Replace small constants by the first one with the same bytes; returns whether there were any."""
    changed = False
    first: dict[tuple[object, ...], str] = {}
    written = [n.outputs[0] for n in graph.nodes if n.op.op_type == "Constant" and not n.op.domain]
    for name in (*graph.constants, *written):
        kind = graph.types[name]
        if not isinstance(kind, TensorType) or name not in graph.static or kind.dtype is DType.STRING:
            continue
        if kind.nbytes <= SMALL and (kind.size == 1 or not kind.dtype.is_float):
            twin = first.setdefault((kind.dtype, kind.shape, kind.value().tobytes()), name)
            if twin != name and graph.reads(name):
                graph.replace_all_uses(name, twin)
                changed = True
    return changed

"""Dead code: nodes none of whose outputs anybody reads.

requires: topological order. ensures: every node's output is read or wanted.
"""

from __future__ import annotations

from pyruntime.ir import TypedGraph
from pyruntime.kernels import Target

__all__ = ["run"]


def run(graph: TypedGraph, target: Target) -> bool:
    """Remove dead nodes; True where there were any."""
    needed = set(graph.outputs)
    kept = []
    for node in reversed(graph.nodes):
        if not needed.isdisjoint(node.outputs):
            needed.update(node.inputs)
            needed.discard("")
            kept.append(node)
    changed = len(kept) < len(graph.nodes)
    graph.nodes = kept[::-1]
    return changed

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
        if any(n in needed for n in node.outputs if n):
            needed.update(n for n in node.inputs if n)
            kept.append(node)
    changed = len(kept) < len(graph.nodes)
    graph.nodes = kept[::-1]
    return changed

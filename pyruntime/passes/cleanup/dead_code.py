"""Dead code: nodes whose outputs have no consumer, and outputs without consumers of nodes that stay.

Exporters name outputs that an operator may leave out (statistics, masks, indices, caches); unnamed, they cost nothing.
Operators in `WHOLE` keep theirs: BatchNormalization has another meaning with one output than with several, and passes
follow Split by the order of its outputs. So do operators that are not pyruntime's.
"""

from __future__ import annotations

from dataclasses import replace

from pyruntime.ir import Node, TypedGraph
from pyruntime.kernels import Target
from pyruntime.ops.base import Op
from pyruntime.passes.graph_pass import Fact, graph_pass

__all__ = ["WHOLE", "run"]

WHOLE = frozenset({"BatchNormalization", "Split"})
"""Operators whose outputs stay named."""


@graph_pass(ensures=(Fact.NO_DEAD_NODES,))
def run(graph: TypedGraph, target: Target) -> bool:
    """Remove dead nodes; True where there were any."""
    needed = set(graph.outputs)
    dead: list[Node] = []
    changed = False
    for node in reversed(graph.nodes):
        if needed.isdisjoint(node.outputs):
            dead.append(node)
            continue
        needed.update(node.inputs)
        changed |= len(node.outputs) > 1 and _unname(graph, node, needed)
    return graph.remove(dead) or changed


def _unname(graph: TypedGraph, node: Node, needed: set[str]) -> bool:
    """Leave out the names of outputs not `needed`; False where there are none, or the operator keeps all."""
    op, dead = node.op, {n for n in node.outputs if n and n not in needed}
    if not dead or not isinstance(op, Op) or op.op_type in WHOLE or len(op.present) != len(node.outputs):
        return False
    if not type(op).__module__.startswith("pyruntime.ops."):
        return False
    outputs = tuple("" if name in dead else name for name in node.outputs)
    graph.update(node, replace(op, present=tuple(map(bool, outputs))), outputs=outputs)
    return True

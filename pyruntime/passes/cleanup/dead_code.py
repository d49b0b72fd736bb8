"""Dead-code elimination: remove nodes whose results are not used, and unname unused outputs of other nodes.

Exporters name optional outputs (statistics, masks, indices, caches); unnamed outputs cost nothing. Operators in `WHOLE`
are excluded: BatchNormalization means something else with a single output, and passes identify outputs of Split by
index. So are user-defined operators.
"""

from __future__ import annotations

from dataclasses import replace

from pyruntime.ir import Node, TypedGraph
from pyruntime.kernels import Target
from pyruntime.ops.base import Op
from pyruntime.passes.graph_pass import Fact, graph_pass

__all__ = ["WHOLE", "run"]

WHOLE = frozenset({"BatchNormalization", "Split"})
"""Operators whose outputs all remain named."""


@graph_pass(ensures=(Fact.NO_DEAD_NODES,))
def run(graph: TypedGraph, target: Target) -> bool:
    """Remove dead nodes; returns whether there were any."""
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
    """Unname outputs that are not `needed`; returns whether there were any."""
    op, dead = node.op, {n for n in node.outputs if n and n not in needed}
    if not dead or not isinstance(op, Op) or op.op_type in WHOLE or len(op.present) != len(node.outputs):
        return False
    if not type(op).__module__.startswith("pyruntime.ops."):
        return False
    outputs = tuple("" if name in dead else name for name in node.outputs)
    graph.update(node, replace(op, present=tuple(map(bool, outputs))), outputs=outputs)
    return True

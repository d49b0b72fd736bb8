"""Nodes that say in another way what today's operators say become these, so that other passes see one kind of each.

- Operators of opsets before 7: what their `axis` means is said by a reshape, which costs nothing.
- CastLike is Cast: `like` is not read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyruntime.ir import DType, Node, TypedGraph, int_array
from pyruntime.kernels import Target
from pyruntime.ops.axis_broadcast import AxisBroadcast
from pyruntime.ops.registry import newest

__all__ = ["run"]


def run(graph: TypedGraph, target: Target) -> bool:
    """Rewrite every such node; True where there was one."""
    made: list[Node] = []
    changed = False
    for node in graph.nodes:
        rewritten = _rewritten(graph, node)
        changed |= rewritten is not None
        made += rewritten or [node]
    graph.nodes = made
    return changed


def _rewritten(graph: TypedGraph, node: Node) -> list[Node] | None:
    if node.outputs[0] in graph.static:
        return None
    if isinstance(node.op, AxisBroadcast):
        return _broadcast(graph, node, node.op)
    if node.op.op_type == "CastLike" and node.op.domain == "":
        op: Any = node.op
        to = graph.tensor(node.outputs[0]).dtype.code
        cast = newest("Cast", to=to, saturate=op.saturate, round_mode=op.round_mode)
        return [Node(cast, node.inputs[:1], node.outputs, node.name)]
    return None


def _broadcast(graph: TypedGraph, node: Node, op: AxisBroadcast) -> list[Node]:
    """Today's operator, behind the node that gives b its shape of today, where that is another."""
    a, b = node.inputs
    kind = graph.tensor(b)
    shape = op.stretched(graph.tensor(a).shape, kind.shape)
    if shape == kind.shape:
        return [Node(op.today, (a, b), node.outputs, node.name)]
    name = graph.fresh(f"{b}.stretched")
    source = (lambda: kind.value().reshape(shape)) if b in graph.static else None
    graph.types[name] = replace(kind, shape=shape, source=source, name=name)
    if b in graph.static:
        graph.static.add(name)
    wanted = graph.add_constant(int_array(shape), DType.INT64, f"{name}.shape")
    return [
        Node(newest("Reshape"), (b, wanted), (name,), name),
        Node(op.today, (a, name), node.outputs, node.name),
    ]

"""Operators of opsets before 7 become today's: what their `axis` means is said by a reshape, which costs nothing.

So every other pass sees one kind of Add.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pyruntime.ir import DType, Node, TypedGraph
from pyruntime.kernels import Target
from pyruntime.ops.axis_broadcast import AxisBroadcast
from pyruntime.ops.registry import newest

__all__ = ["run"]


def run(graph: TypedGraph, target: Target) -> bool:
    """Rewrite every such node; True where there was one."""
    made: list[Node] = []
    changed = False
    for node in graph.nodes:
        if not isinstance(node.op, AxisBroadcast):
            made.append(node)
            continue
        changed = True
        a, b = node.inputs
        reshaped = _reshaped(graph, node.op, a, b)
        made += [
            *reshaped,
            Node(node.op.today, (a, reshaped[0].outputs[0] if reshaped else b), node.outputs, node.name),
        ]
    graph.nodes = made
    return changed


def _reshaped(graph: TypedGraph, op: AxisBroadcast, a: str, b: str) -> list[Node]:
    """The node that gives b its shape of today, where that is another."""
    kind = graph.tensor(b)
    shape = op.stretched(graph.tensor(a).shape, kind.shape)
    if shape == kind.shape:
        return []
    name = graph.fresh(f"{b}.stretched")
    source = (lambda: kind.value().reshape(shape)) if b in graph.static else None
    graph.types[name] = replace(kind, shape=shape, source=source, name=name)
    if b in graph.static:
        graph.static.add(name)
    wanted = graph.add_constant(np.array(shape, np.int64), DType.INT64, f"{name}.shape")
    return [Node(newest("Reshape"), (b, wanted), (name,), name)]

"""Rotary embeddings of heads that lie behind each other, as queries and keys of one product, become one and a Split.

requires: `fuse_rotary` has run. ensures: no two FusedRotary with the same tables whose heads are neighbours.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np

from pyruntime.ir import DType, Node, TensorType, TypedGraph
from pyruntime.kernels import Target
from pyruntime.kernels.attention_form import HeadView
from pyruntime.ops.fused_rotary import FusedRotary
from pyruntime.ops.registry import newest

__all__ = ["run"]


def run(graph: TypedGraph, target: Target) -> bool:
    """Join every pair; True where there was one."""
    by_source: dict[tuple[str, ...], list[Node]] = {}
    for node in graph.nodes:
        if isinstance(node.op, FusedRotary) and not set(node.outputs) & set(graph.outputs):
            by_source.setdefault(node.inputs, []).append(node)
    joined: dict[int, list[Node]] = {}
    for nodes in by_source.values():
        for a, b in combinations(nodes, 2):
            if id(a) not in joined and id(b) not in joined:
                made = _joint(graph, a, b) or _joint(graph, b, a)
                if made is not None:
                    joined |= {id(a): made, id(b): []}
    graph.nodes = [n for node in graph.nodes for n in joined.get(id(node), [node])]
    return bool(joined)


def _joint(graph: TypedGraph, a: Node, b: Node) -> list[Node] | None:
    """a and b as one, where b's heads lie behind a's."""
    first, second = a.op, b.op
    assert isinstance(first, FusedRotary) and isinstance(second, FusedRotary)
    if len(first.y_shape) != 4 or len(second.y_shape) != 4:
        return None
    cos = graph.tensor(a.inputs[1])
    table = (1,) * (4 - cos.rank) + cos.shape
    for axis in (1, 2):
        counts = first.sizes[axis], second.sizes[axis]
        if not all(isinstance(n, int) for n in counts) or table[axis] != 1:
            continue
        base = first.view.base + counts[0] * first.view.strides[axis]
        sizes = list(first.sizes)
        sizes[axis] = counts[1]
        shape = (sizes[0], sizes[1], sizes[2], sizes[3])
        moved = HeadView(base, first.view.strides)
        if second != replace(first, sizes=shape, view=moved, y_shape=shape, present=second.present):
            continue
        sizes[axis] = sum(counts)
        shape = (sizes[0], sizes[1], sizes[2], sizes[3])
        name = graph.fresh(f"{a.outputs[0]}.joined")
        graph.types[name] = TensorType(graph.tensor(a.outputs[0]).dtype, shape, None, name)
        widths = graph.add_constant(np.array(counts, np.int64), DType.INT64, f"{name}.sizes")
        split = newest("Split", axis=axis, present=(True, True))
        return [
            Node(replace(first, sizes=shape, y_shape=shape), a.inputs, (name,), a.name),
            Node(split, (name, widths), (*a.outputs, *b.outputs), f"{a.name}.split"),
        ]
    return None

"""A movement of elements written as nodes: a Reshape that takes dimensions apart, a Transpose, a Reshape that joins."""

from __future__ import annotations

from collections.abc import Sequence

from pyruntime.ir import DType, Node, TensorType, TypedGraph, int_array
from pyruntime.ops.registry import newest

__all__ = ["rearranged"]


def rearranged(graph: TypedGraph, node: Node, source: str, split: Sequence[int], perm: Sequence[int]) -> list[Node]:
    """What `node` gives as reshape(transpose(reshape(source, split), perm), its shape)."""
    y = graph.tensor(node.outputs[0])
    names = [graph.fresh(f"{node.outputs[0]}.{part}") for part in ("split", "turned")]
    for name, sizes in zip(names, (split, [split[p] for p in perm]), strict=True):
        graph.types[name] = TensorType(y.dtype, tuple(sizes), None, name)
    shapes = [graph.add_constant(int_array(s), DType.INT64, f"{node.outputs[0]}.shape") for s in (split, y.shape)]
    return [
        Node(newest("Reshape", allowzero=1), (source, shapes[0]), (names[0],), names[0]),
        Node(newest("Transpose", perm=tuple(perm)), (names[0],), (names[1],), node.name),
        Node(newest("Reshape", allowzero=1), (names[1], shapes[1]), node.outputs, node.name),
    ]

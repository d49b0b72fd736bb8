"""Nodes that can run channels-last, [N, D1 .. Dn, C] instead of [N, C, D1 .. Dn], and the cost of layout changes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from enum import Enum
from typing import Any

from pyruntime.ir import Node, TensorType, TypedGraph, hint, multiple
from pyruntime.kernels.convolution.depthwise_channels_last import knows_last
from pyruntime.kernels.windows import Window
from pyruntime.ops.base import Unsupported
from pyruntime.ops.convolution.conv import convolved_shape
from pyruntime.ops.convolution.sliding import volume
from pyruntime.ops.elementwise.elementwise import Elementwise
from pyruntime.ops.reduction.reduce import Reduce
from pyruntime.passes.match import Matcher

__all__ = [
    "Groups",
    "Kind",
    "across",
    "is_layout_transpose",
    "kind_of",
    "layout_inputs",
    "saved_after",
    "to_first",
    "to_last",
    "transposed_from",
    "transposes_back",
    "weight",
]

MOVEMENT = 1 << 18
"""Bytes whose movement costs as much as the dispatch that moves them."""


class Groups:
    """Disjoint sets of nodes (union-find)."""

    def __init__(self) -> None:
        self._parents: dict[Node, Node] = {}

    def root(self, node: Node) -> Node:
        """Return the representative of the set of `node`."""
        while (parent := self._parents.get(node)) is not None:
            node = parent
        return node

    def join(self, one: Node, other: Node) -> None:
        """Merge the sets of two nodes; the representative of `other` represents both."""
        first, second = self.root(one), self.root(other)
        if first is not second:
            self._parents[first] = second


class Kind(Enum):
    """How a node runs channels-last.

    DEPTHWISE: by a separate kernel. POINTWISE: as a matrix product. PATCHES: as a matrix product after one transpose of
    its input. ELEMENTWISE: unchanged. SINK: it reduces all spatial dimensions, so its result has no layout.
    """

    DEPTHWISE = "depthwise"
    POINTWISE = "pointwise"
    PATCHES = "patches"
    ELEMENTWISE = "elementwise"
    SINK = "sink"


def to_last(rank: int) -> tuple[int, ...]:
    """Return the permutation [N, C, D1 .. Dn] -> [N, D1 .. Dn, C]."""
    return (0, *range(2, rank), 1)


def to_first(rank: int) -> tuple[int, ...]:
    """Return the permutation [N, D1 .. Dn, C] -> [N, C, D1 .. Dn]."""
    return (0, rank - 1, *range(1, rank - 1))


def kind_of(graph: TypedGraph, node: Node) -> Kind | None:
    """Return how `node` can run channels-last; None if it cannot."""
    if any(node.outputs[1:]) or node.outputs[0] in graph.static:
        return None
    y = graph.types[node.outputs[0]]
    if not isinstance(y, TensorType) or not y.size:
        return None
    if isinstance(node.op, Elementwise):
        return Kind.ELEMENTWISE if _is_elementwise(graph, node, y) else None
    if node.op.domain:
        return None
    if node.op.op_type == "Conv":
        return _convolution(graph, node, y)
    return Kind.SINK if _reduces_space(graph, node) else None


def _reduces_space(graph: TypedGraph, node: Node) -> bool:
    """Whether the node reduces exactly the spatial dimensions of its input."""
    if not isinstance(node.op, Reduce) or node.inputs[0] in graph.static:
        return False
    x = graph.tensor(node.inputs[0])
    axes = graph.tensor(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] else None
    if axes is not None and node.inputs[1] not in graph.static:
        return False
    return x.rank > 2 and node.op.axes_of(x, axes) == tuple(range(2, x.rank))


def _is_elementwise(graph: TypedGraph, node: Node, y: TensorType) -> bool:
    if y.rank < 3 or hasattr(node.op, "axis"):
        return False
    kinds = [graph.types[n] for n in node.inputs if n]
    return all(isinstance(k, TensorType) and (k.shape == y.shape or across(k, y.rank) is not None) for k in kinds)


def across(kind: TensorType, rank: int) -> tuple[Any, ...] | None:
    """Return the channels-last shape of an operand without spatial extent; None for others."""
    shape = (1,) * (rank - kind.rank) + kind.shape
    flat = len(shape) == rank and all(d == 1 for d in shape[2:])
    return (shape[0], *shape[2:], shape[1]) if flat else None


def _convolution(graph: TypedGraph, node: Node, y: TensorType) -> Kind | None:
    op: Any = node.op
    x, w = graph.tensor(node.inputs[0]), graph.tensor(node.inputs[1])
    biased = len(node.inputs) > 2 and node.inputs[2]
    if node.inputs[1] not in graph.static or (biased and node.inputs[2] not in graph.static):
        return None
    if not x.dtype.is_float or x.dtype.is_wide:
        return None
    window = convolved_shape(op, x, w, op.group)
    if op.group == 1:
        if window.is_pointwise:
            return Kind.POINTWISE
        return Kind.PATCHES if _tiles(window) else None
    try:
        known = knows_last(volume(window), x.shape[1], x.dtype)
    except Unsupported:
        return None
    return Kind.DEPTHWISE if known and op.group == x.shape[1] == y.shape[1] else None


def _tiles(window: Window) -> bool:
    """Whether windows tile the input without gaps, overlap or padding, for all sizes."""
    dense = window.kernel == window.strides and not any(window.begin) and set(window.dilations) == {1}
    return dense and all(multiple(i, k) for i, k in zip(window.input, window.kernel, strict=True))


def layout_inputs(graph: TypedGraph, node: Node, kind: Kind) -> list[str]:
    """Return the inputs of a node that have the layout of its result."""
    if kind is not Kind.ELEMENTWISE:
        return [node.inputs[0]]
    y = graph.tensor(node.outputs[0])
    names = dict.fromkeys(n for n in node.inputs if n)
    return [n for n in names if graph.tensor(n).shape == y.shape and across(graph.tensor(n), y.rank) is None]


def is_layout_transpose(graph: TypedGraph, node: Node) -> bool:
    """Whether `node` is a Transpose between the two layouts."""
    op: Any = node.op
    if op.op_type != "Transpose" or op.domain or node.outputs[0] in graph.static:
        return False
    rank = graph.tensor(node.inputs[0]).rank
    return rank > 2 and tuple(op.permutation(rank)) in (to_first(rank), to_last(rank))


def transposed_from(graph: TypedGraph, match: Matcher, name: str) -> str | None:
    """Return the value of which `name` is the channels-first transpose, possibly via [N, D1 * .. * Dn, C], or None."""
    kind = graph.tensor(name)
    node: Any = match.producer(name, "Transpose", "Reshape")
    if node is None:
        return None
    if node.op.op_type == "Reshape":
        inner = graph.tensor(node.inputs[0])
        if inner.rank != 3 or kind.rank < 3 or inner.shape[:2] != kind.shape[:2]:
            return None
        node = match.producer(node.inputs[0], "Transpose")
        if node is None:
            return None
    rank = graph.tensor(node.inputs[0]).rank
    return node.inputs[0] if rank > 2 and tuple(node.op.permutation(rank)) == to_first(rank) else None


def transposes_back(graph: TypedGraph, match: Matcher, node: Node, name: str) -> bool:
    """Whether `node`, which reads `name`, only transposes it to channels-last."""
    op: Any = node.op
    rank = graph.tensor(name).rank
    if op.domain or node.outputs[0] in graph.static:
        return False
    if op.op_type == "Transpose":
        return tuple(op.permutation(rank)) == to_last(rank)
    if op.op_type != "Reshape" or node.inputs[0] != name or node.outputs[0] in match.wanted:
        return False
    merged = graph.tensor(node.outputs[0])
    if merged.rank != 3 or merged.shape[:2] != graph.tensor(name).shape[:2]:
        return False
    readers = graph.consumers(node.outputs[0])
    return all(transposes_back(graph, match, r, node.outputs[0]) and r.op.op_type == "Transpose" for r in readers)


def weight(graph: TypedGraph, name: str) -> int:
    """Return the cost of moving a value, in bytes."""
    kind = graph.tensor(name)
    return int(hint(kind.size)) * kind.dtype.bits // 8 + MOVEMENT


def saved_after(
    graph: TypedGraph, match: Matcher, made: Iterable[str], members: Collection[Node], back: Callable[[Node, str], bool]
) -> int:
    """Return the bytes saved after a region whose layout changes.

    Args:
        made: values of the region.
        members: nodes of the region.
        back: whether a node only transposes a value to the region's new layout.
    """
    saved = 0
    for name in made:
        outside = [r for r in graph.consumers(name) if r not in members]
        turning = sum(back(r, name) for r in outside)
        saved += turning * weight(graph, name)
        if turning < len(outside) or name in match.wanted:
            saved -= weight(graph, name)
    return saved

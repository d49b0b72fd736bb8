"""Nodes that can have their channels last, [N, D1 .. Dn, C] for [N, C, D1 .. Dn], and what turns one into the other."""

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
    "kind_of",
    "layout_inputs",
    "saved_after",
    "to_first",
    "to_last",
    "turned_back",
    "turned_from",
    "turns",
    "weight",
]

MOVEMENT = 1 << 18
"""Bytes that cost as much as the dispatch of a movement without its bytes."""


class Groups:
    """Nodes that belong together, because one was joined with the other or both with a third one."""

    def __init__(self) -> None:
        self._parents: dict[Node, Node] = {}

    def root(self, node: Node) -> Node:
        """The node that stands for the group of `node`."""
        while (parent := self._parents.get(node)) is not None:
            node = parent
        return node

    def join(self, one: Node, other: Node) -> None:
        """Make one group of those of two nodes; that of `other` stands for it."""
        first, second = self.root(one), self.root(other)
        if first is not second:
            self._parents[first] = second


class Kind(Enum):
    """How a node computes with its channels last.

    DEPTHWISE: by its own kernel. POINTWISE: as a product. PATCHES: as a product after one movement of its input.
    ELEMENTWISE: as it is. SINK: it reduces all spatial dimensions, so that its result has no layout.
    """

    DEPTHWISE = "depthwise"
    POINTWISE = "pointwise"
    PATCHES = "patches"
    ELEMENTWISE = "elementwise"
    SINK = "sink"


def to_last(rank: int) -> tuple[int, ...]:
    """The permutation [N, C, D1 .. Dn] -> [N, D1 .. Dn, C]."""
    return (0, *range(2, rank), 1)


def to_first(rank: int) -> tuple[int, ...]:
    """The permutation [N, D1 .. Dn, C] -> [N, C, D1 .. Dn]."""
    return (0, rank - 1, *range(1, rank - 1))


def kind_of(graph: TypedGraph, node: Node) -> Kind | None:
    """How `node` can have its channels last; None where it cannot."""
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
    """Whether nothing but the images and channels of its input are left."""
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
    """The shape with channels last of an operand without spatial extent, None of any other."""
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
    """Whether windows cover the input without gaps, overlap or padding, whatever its sizes are."""
    dense = window.kernel == window.strides and not any(window.begin) and set(window.dilations) == {1}
    return dense and all(multiple(i, k) for i, k in zip(window.input, window.kernel, strict=True))


def layout_inputs(graph: TypedGraph, node: Node, kind: Kind) -> list[str]:
    """The inputs of a node whose layout is that of its result."""
    if kind is not Kind.ELEMENTWISE:
        return [node.inputs[0]]
    y = graph.tensor(node.outputs[0])
    names = dict.fromkeys(n for n in node.inputs if n)
    return [n for n in names if graph.tensor(n).shape == y.shape and across(graph.tensor(n), y.rank) is None]


def turns(graph: TypedGraph, node: Node) -> bool:
    """Whether `node` turns values between the two layouts, as far as its permutation says."""
    op: Any = node.op
    if op.op_type != "Transpose" or op.domain or node.outputs[0] in graph.static:
        return False
    rank = graph.tensor(node.inputs[0]).rank
    return rank > 2 and tuple(op.permutation(rank)) in (to_first(rank), to_last(rank))


def turned_from(graph: TypedGraph, match: Matcher, name: str) -> str | None:
    """What has the elements of `name` with channels last, perhaps as [N, D1 * .. * Dn, C]; None where nothing has."""
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


def turned_back(graph: TypedGraph, match: Matcher, node: Node, name: str) -> bool:
    """Whether `node`, which reads `name`, gives nothing but its elements with channels last."""
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
    return all(turned_back(graph, match, r, node.outputs[0]) and r.op.op_type == "Transpose" for r in readers)


def weight(graph: TypedGraph, name: str) -> int:
    """What moving a value costs, in bytes."""
    kind = graph.tensor(name)
    return int(hint(kind.size)) * kind.dtype.bits // 8 + MOVEMENT


def saved_after(
    graph: TypedGraph, match: Matcher, made: Iterable[str], members: Collection[Node], back: Callable[[Node, str], bool]
) -> int:
    """Bytes that are not moved after a region whose layout changes, less those that are then.

    Args:
        made: values of the region. members: its nodes.
        back: whether a node only turns a value into the region's new layout.
    """
    saved = 0
    for name in made:
        outside = [r for r in graph.consumers(name) if r not in members]
        turning = sum(back(r, name) for r in outside)
        saved += turning * weight(graph, name)
        if turning < len(outside) or name in match.wanted:
            saved -= weight(graph, name)
    return saved

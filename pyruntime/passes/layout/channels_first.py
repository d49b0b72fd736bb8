"""Run elementwise operators between transposes channels-first, if that moves fewer bytes.

Models optimized by onnxruntime have channels-last convolutions, pools and norms (NhwcConv, QLinearConv, GroupNorm),
which are planned as channels-first operators between transposes. Residuals, activations and quantization steps between
them are elementwise. Connected regions of these change their layout together if the transposes at their borders then
cost less.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyruntime.ir import Node, TensorType, TypedGraph
from pyruntime.kernels import Target
from pyruntime.ops.elementwise.elementwise import Elementwise
from pyruntime.ops.registry import newest
from pyruntime.passes.graph_pass import Fact, graph_pass
from pyruntime.passes.layout.layouts import Groups, saved_after, to_first, to_last, weight
from pyruntime.passes.match import Matcher
from pyruntime.passes.writer import Writer

__all__ = ["run"]


@dataclass(slots=True)
class _Region:
    """Elementwise nodes, their results, and the inputs of the results' shape."""

    nodes: list[Node] = field(default_factory=list)
    made: set[str] = field(default_factory=set)
    read: dict[str, None] = field(default_factory=dict)


@graph_pass(requires=(Fact.CHANNELS_LAST,), breaks=(Fact.NO_DEAD_NODES,))
def run(graph: TypedGraph, target: Target) -> bool:
    """Change the layout of all profitable regions; returns whether there were any."""
    match = Matcher(graph)
    if not any(_transposes_to(graph, n, to_last) for n in graph.nodes):
        return False
    chosen = [region for region in _regions(graph, match) if _saved(graph, match, region) > 0]
    if not chosen:
        return False
    return graph.substitute(_Rewriter(graph, match, chosen).instead())


def _transposes_to(graph: TypedGraph, node: Node | None, layout: Any) -> bool:
    """Whether `node` is a Transpose to this layout."""
    op: Any = node and node.op
    if node is None or op.op_type != "Transpose" or op.domain or node.outputs[0] in graph.static:
        return False
    rank = graph.tensor(node.inputs[0]).rank
    return rank > 2 and tuple(op.permutation(rank)) == layout(rank)


def _regions(graph: TypedGraph, match: Matcher) -> list[_Region]:
    """Return connected elementwise nodes: one reads the other's result, or both read the same value."""
    groups, members = Groups(), list[tuple[Node, list[str]]]()
    first: dict[str, Node] = {}
    for node in graph.nodes:
        full = _full(graph, node)
        if full is None:
            continue
        members.append((node, full))
        for name in (*full, node.outputs[0]):
            groups.join(first.setdefault(name, node), node)
    regions: dict[Node, _Region] = {}
    for node, full in members:
        region = regions.setdefault(groups.root(node), _Region())
        region.nodes.append(node)
        region.made.add(node.outputs[0])
        region.read |= dict.fromkeys(full)
    return list(regions.values())


def _full(graph: TypedGraph, node: Node) -> list[str] | None:
    """Return the inputs of an elementwise node with its result's shape; None if it cannot change its layout."""
    y = graph.types.get(node.outputs[0])
    if not isinstance(node.op, Elementwise) or hasattr(node.op, "axis") or any(node.outputs[1:]):
        return None
    if not isinstance(y, TensorType) or y.rank < 3 or not y.size or node.outputs[0] in graph.static:
        return None
    names: list[str] = []
    for name in filter(None, node.inputs):
        kind = graph.types[name]
        if not isinstance(kind, TensorType):
            return None
        if _along(kind, y.rank) is None:
            if kind.shape != y.shape or name in graph.static:
                return None
            names.append(name)
    return names or None


def _along(kind: TensorType, rank: int) -> tuple[Any, ...] | None:
    """Return the channels-first shape of an operand without spatial extent; None for others."""
    shape = (1,) * (rank - kind.rank) + kind.shape
    flat = len(shape) == rank and all(not hasattr(d, "sizes") and d == 1 for d in shape[1:-1])
    return tuple(shape[p] for p in to_first(rank)) if flat else None


def _saved(graph: TypedGraph, match: Matcher, region: _Region) -> int:
    """Return the bytes saved if the region becomes channels-first."""
    members = set(region.nodes)
    saved = 0
    for name in region.read:
        if name in region.made:
            continue
        if not _transposes_to(graph, graph.producer(name), to_last):
            saved -= weight(graph, name)
        elif name not in match.wanted and members.issuperset(graph.consumers(name)):
            saved += weight(graph, name)
    return saved + saved_after(graph, match, region.made, members, lambda r, _: _transposes_to(graph, r, to_first))


class _Rewriter(Writer):
    """Writes regions channels-first, and the transposes of their results as views."""

    def __init__(self, graph: TypedGraph, match: Matcher, regions: list[_Region]) -> None:
        super().__init__(graph, match)
        self.members = {n for region in regions for n in region.nodes}
        self.inside = {name for region in regions for name in region.made}
        self.first: dict[str, str] = {}

    def _write(self, node: Node) -> bool:
        if node in self.members:
            self._convert(node)
        elif _transposes_to(self.graph, node, to_first) and node.inputs[0] in self.inside:
            result = node.outputs[0]
            self.made.append(self._reshape(self.first[node.inputs[0]], result, self.graph.tensor(result).shape))
        else:
            return False
        return True

    def _convert(self, node: Node) -> None:
        """Write an elementwise node channels-first, and a Transpose of its result where consumers need one."""
        full, name = set(_full(self.graph, node) or ()), node.outputs[0]
        y = self.graph.tensor(name)
        inputs = [n if not n else self._in_first(n) if n in full else self._across(n, y.rank) for n in node.inputs]
        self.first[name] = self._value(f"{name}.first", y.dtype, tuple(y.shape[p] for p in to_first(y.rank)))
        self.made.append(Node(node.op, tuple(inputs), (self.first[name],), node.name))
        outside = [r for r in self.graph.consumers(name) if r not in self.members]
        if name in self.match.wanted or not all(_transposes_to(self.graph, r, to_first) for r in outside):
            self.made.append(
                Node(newest("Transpose", perm=to_last(y.rank)), (self.first[name],), (name,), f"{node.name}.last")
            )

    def _in_first(self, name: str) -> str:
        """Return `name` in channels-first layout."""
        if name not in self.first:
            maker = self.graph.producer(name)
            kind = self.graph.tensor(name)
            if maker is not None and _transposes_to(self.graph, maker, to_last):
                self.first[name] = maker.inputs[0]
            else:
                perm = to_first(kind.rank)
                result = self._value(f"{name}.first", kind.dtype, tuple(kind.shape[p] for p in perm))
                self.made.append(Node(newest("Transpose", perm=perm), (name,), (result,), f"{name}.first"))
                self.first[name] = result
        return self.first[name]

    def _across(self, name: str, rank: int) -> str:
        """Return an operand without spatial extent in channels-first layout."""
        kind = self.graph.tensor(name)
        shape: Any = _along(kind, rank)
        if kind.size == 1:
            return name
        known = self._static(name, lambda value: value.reshape(shape), shape, f"{name}.first")
        result = known or self._value(f"{name}.first", kind.dtype, shape)
        self.made.append(self._reshape(name, result, shape))
        return result

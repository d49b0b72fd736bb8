"""Run convolutions between transposes channels-last, if that moves fewer bytes.

Models that mix convolutions [N, C, H, W] with layers over the last dimension (ConvNeXt, SegFormer, PVT, Conformer)
transpose each value between the two. Some operators run in either layout: depthwise convolutions (`DepthwiseLast`),
pointwise ones and those with windows that tile the input (matrix products, the latter after a transpose), and
elementwise operators. Connected regions of such operators change their layout together if the transposes at their
borders then cost less.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pyruntime.ir import Node, TypedGraph
from pyruntime.kernels import Target
from pyruntime.passes.graph_pass import Fact, graph_pass
from pyruntime.passes.layout.layouts import (
    Groups,
    Kind,
    is_layout_transpose,
    kind_of,
    layout_inputs,
    saved_after,
    transposed_from,
    transposes_back,
    weight,
)
from pyruntime.passes.layout.write_channels_last import Rewriter
from pyruntime.passes.match import Matcher

__all__ = ["run"]


@dataclass(slots=True)
class _Region:
    """Nodes that change their layout together, and their results."""

    kinds: dict[Node, Kind] = field(default_factory=dict)
    made: set[str] = field(default_factory=set)


@graph_pass(ensures=(Fact.CHANNELS_LAST,), breaks=(Fact.NO_DEAD_NODES,))
def run(graph: TypedGraph, target: Target) -> bool:
    """Change the layout of all profitable regions; returns whether there were any."""
    if not any(is_layout_transpose(graph, node) for node in graph.nodes):
        return False
    match = Matcher(graph)
    chosen = [region for region in _regions(graph, match) if _saved(graph, match, region) > 0]
    if not chosen:
        return False
    kinds = {n: k for r in chosen for n, k in r.kinds.items()}
    return graph.substitute(Rewriter(graph, match, kinds).instead())


def _regions(graph: TypedGraph, match: Matcher) -> Iterable[_Region]:
    """Return groups of connected nodes that can run channels-last.

    Two nodes connect if one reads the other's result or both read the same transposed value.
    """
    kinds: dict[Node, Kind] = {}
    groups = Groups()
    first_reader: dict[str, Node] = {}
    for node in graph.nodes:
        kind = kind_of(graph, node)
        if kind is None:
            continue
        kinds[node] = kind
        for name in layout_inputs(graph, node, kind):
            maker = graph.producer(name)
            if maker is not None and kinds.get(maker, Kind.SINK) is not Kind.SINK:
                groups.join(maker, node)
            elif transposed_from(graph, match, name) is not None:
                groups.join(first_reader.setdefault(name, node), node)
    regions: dict[Node, _Region] = {}
    for node, kind in kinds.items():
        region = regions.setdefault(groups.root(node), _Region())
        region.kinds[node] = kind
        if kind is not Kind.SINK:
            region.made.add(node.outputs[0])
    return regions.values()


def _saved(graph: TypedGraph, match: Matcher, region: _Region) -> int:
    """Return the bytes saved if the region becomes channels-last."""
    saved = 0
    seen: set[str] = set()
    for node, kind in region.kinds.items():
        for name in layout_inputs(graph, node, kind):
            if kind is Kind.PATCHES:
                saved -= weight(graph, name)
            if name in region.made or name in graph.static or name in seen:
                continue
            seen.add(name)
            if transposed_from(graph, match, name) is None:
                saved -= weight(graph, name) if kind is not Kind.PATCHES else 0
            elif name not in match.wanted and all(r in region.kinds for r in graph.consumers(name)):
                saved += weight(graph, name)
    return saved + saved_after(
        graph, match, region.made, region.kinds, lambda r, name: transposes_back(graph, match, r, name)
    )

"""Merge two transposes with only reshapes between them into one, over their common dimensions.

transpose(reshape(transpose(x, p)), q) = reshape(transpose(reshape(x), r)), if the dimensions after p and before q are
products of the same smaller dimensions, in order. Both move elements, values in between have no other consumers, and no
dimension is dynamic. Source: the unfolding of Mehta and Rastegari, 2022 (MobileViT).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from pyruntime.ir import Dim, Node, TypedGraph
from pyruntime.kernels import Target
from pyruntime.ops.movement.transpose import Transpose
from pyruntime.passes.graph_pass import Fact, graph_pass
from pyruntime.passes.match import Matcher
from pyruntime.passes.writer import rearranged

__all__ = ["run"]


@graph_pass(requires=(Fact.NO_DEAD_NODES, Fact.ATTENTION_FUSED))
def run(graph: TypedGraph, target: Target) -> bool:
    """Merge all pairs; returns whether there were any."""
    match = Matcher(graph)
    changed = False
    for node in graph.nodes:
        changed |= isinstance(node.op, Transpose) and graph.substitute(_merged(graph, match, node))
    return changed


def _merged(graph: TypedGraph, match: Matcher, node: Node) -> dict[Node, list[Node]]:
    """Return the replacements of the Transpose `node`, of the one before it, and of the reshapes in between."""
    name, path = node.inputs[0], list[Node]()
    while match.read_once(name) and (reshape := match.producer(name, "Reshape")) is not None:
        path.append(reshape)
        name = reshape.inputs[0]
    first = graph.producer(name)
    if first is None or not match.read_once(name) or not _moves(graph, first) or not _moves(graph, node):
        return {}
    x, middle, taken, y = (graph.tensor(n) for n in (first.inputs[0], name, node.inputs[0], node.outputs[0]))
    parts = _common(middle.shape, taken.shape)
    if parts is None:
        return {}
    assert isinstance(first.op, Transpose)
    assert isinstance(node.op, Transpose)
    into, out_of = first.op.permutation(x.rank), node.op.permutation(y.rank)
    given, wanted = _grouped(parts, middle.shape), _grouped(parts, taken.shape)
    before = [part for d in range(x.rank) for part in given[into.index(d)]]
    after = [part for d in out_of for part in wanted[d]]
    perm = tuple(before.index(part) for part in after)
    made = rearranged(graph, node, first.inputs[0], [parts[p] for p in before], perm)
    return {**{n: [] for n in (first, *path)}, node: made}


def _moves(graph: TypedGraph, node: Node) -> bool:
    """Whether the node is a Transpose of concrete sizes that moves elements."""
    if not isinstance(node.op, Transpose) or node.outputs[0] in graph.static:
        return False
    x = graph.tensor(node.inputs[0])
    return not any(isinstance(d, Dim) for d in x.shape) and node.op.alias(x) is None


def _common(first: Sequence[int], second: Sequence[int]) -> list[int] | None:
    """Return the shortest shape from which joining adjacent dimensions gives either shape; None if there is none."""
    steps = sorted({1, *_ends(first), *_ends(second)}, reverse=True)
    if any(a % b for a, b in pairwise(steps)):
        return None
    return [a // b for a, b in pairwise(steps)]


def _ends(shape: Sequence[int]) -> list[int]:
    """Return the number of elements of each dimension and all that follow it, innermost first."""
    made: list[int] = []
    for size in reversed(shape):
        made.append(size * (made[-1] if made else 1))
    return made


def _grouped(parts: Sequence[int], shape: Sequence[int]) -> list[list[int]]:
    """Return the indices of the parts whose product each dimension is."""
    at, made = 0, list[list[int]]()
    for size in shape:
        group: list[int] = []
        while size > 1:
            size //= parts[at]
            group.append(at)
            at += 1
        made.append(group)
    return made

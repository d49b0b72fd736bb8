"""Fuse rolls, written as concat(x[n:], x[:n]), with adjacent reshapes and transposes.

Two slices that together are all of a value, in exchanged order, are a roll along their dimension. It absorbs rolls
along other dimensions, and a Reshape, Transpose and Reshape after it (window partition) or before it (window reverse),
one of them each time the pass runs. Not for dynamic dimensions. Source: Liu et al., 2021 (Swin).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyruntime.ir import Dim, Node, TypedGraph
from pyruntime.kernels import Target
from pyruntime.ops.fused.rolled_transpose import RolledTranspose
from pyruntime.passes.graph_pass import Fact, graph_pass
from pyruntime.passes.match import Matcher
from pyruntime.passes.views import trace

__all__ = ["run"]


@graph_pass(requires=(Fact.SHAPES_CONSTANT,), ensures=(Fact.ROLLS_FUSED,), breaks=(Fact.NO_DEAD_NODES,), repeats=True)
def run(graph: TypedGraph, target: Target) -> bool:
    """Replace rolls, and fuse each with one adjacent node; returns whether there were any."""
    match = Matcher(graph)
    changed = graph.rewrite(lambda node: [roll] if (roll := _roll(graph, match, node)) else None)
    if changed:
        graph.remove([n for n in graph.nodes if n.op.op_type in ("Slice", "Split") and not _is_read(graph, n)])
    return _join(graph) or changed


def _is_read(graph: TypedGraph, node: Node) -> bool:
    """Whether an output of the node is read or is a graph output."""
    return any(name in graph.outputs or graph.reads(name) for name in node.outputs)


def _roll(graph: TypedGraph, match: Matcher, node: Node) -> Node | None:
    """Return the Concat `node` as a roll, or None."""
    op: Any = node.op
    if op.domain or op.op_type != "Concat" or len(node.inputs) != 2 or node.outputs[0] in graph.static:
        return None
    slices = [match.producer(n, "Slice", "Split") for n in node.inputs]
    if slices[0] is None or slices[1] is None or slices[0].inputs[0] != slices[1].inputs[0]:
        return None
    source = slices[0].inputs[0]
    x, axis = graph.tensor(source), op.axis % graph.tensor(node.outputs[0]).rank
    if any(isinstance(d, Dim) for d in x.shape) or graph.tensor(node.outputs[0]).shape != x.shape or x.dtype.is_wide:
        return None
    first, second = (graph.tensor(n).shape[axis] for n in node.inputs)
    shift = x.shape[axis] - first
    whole = trace(graph, source)
    parts = [trace(graph, n) for n in node.inputs]
    wanted = (whole.sliced(axis, shift, first), whole.sliced(axis, 0, second))
    if not first or not second or tuple(parts) != wanted:
        return None
    before = tuple(shift if d == axis else 0 for d in range(x.rank))
    none = (0,) * x.rank
    roll = RolledTranspose(before=before, middle=x.shape, perm=tuple(range(x.rank)), shape=x.shape, after=none)
    return Node(roll, (source,), node.outputs, node.name)


def _join(graph: TypedGraph) -> bool:
    """Fuse each roll with one node after or before it; returns whether any was fused."""
    match = Matcher(graph)
    instead: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        if not isinstance(node.op, RolledTranspose) or node in instead:
            continue
        for other, joined in _neighbors(graph, match, node):
            if joined is not None and other not in instead:
                first, last = (node, other) if joined.outputs == other.outputs else (other, node)
                instead |= {first: [], last: [joined]}
                break
    return graph.substitute(instead)


def _neighbors(graph: TypedGraph, match: Matcher, node: Node) -> list[tuple[Node, Node | None]]:
    """Return the node after and before a roll, each with the fused node (None if they cannot be fused)."""
    found: list[tuple[Node, Node | None]] = []
    if match.read_once(node.outputs[0]):
        (after,) = graph.consumers(node.outputs[0])
        if after.inputs[0] == node.outputs[0]:
            found.append((after, _with_after(graph, node, after)))
    before = graph.producer(node.inputs[0])
    if before is not None and match.read_once(node.inputs[0]) and node.inputs[0] not in graph.static:
        found.append((before, _with_before(graph, node, before)))
    return found


def _with_after(graph: TypedGraph, node: Node, after: Node) -> Node | None:
    """Return the roll fused with the node after it, or None."""
    op, next_op = node.op, after.op
    assert isinstance(op, RolledTranspose)
    name = after.name or node.name
    permutes = op.perm != tuple(range(len(op.perm)))
    if isinstance(next_op, RolledTranspose):
        plain = next_op.perm == tuple(range(len(next_op.perm)))
        if permutes or any(op.after) or not plain or next_op.middle != op.shape or any(next_op.after):
            return None
        sizes = zip(op.before, next_op.before, op.shape, strict=True)
        return Node(replace(op, before=tuple((a + b) % n for a, b, n in sizes)), node.inputs, after.outputs, name)
    if next_op.domain or any(op.after) or after.outputs[0] in graph.static:
        return None
    shape = graph.tensor(after.outputs[0]).shape
    if next_op.op_type == "Reshape":
        middle = op.middle if permutes else shape
        perm = op.perm if permutes else tuple(range(len(shape)))
        made = replace(op, middle=middle, perm=perm, shape=shape, after=(0,) * len(shape))
        return Node(made, node.inputs, after.outputs, name)
    if next_op.op_type == "Transpose" and not permutes:
        perm = tuple(next_op.permutation(len(shape)))  # type: ignore[attr-defined]
        made = replace(op, perm=perm, shape=shape, after=(0,) * len(shape))
        return Node(made, node.inputs, after.outputs, name)
    return None


def _with_before(graph: TypedGraph, node: Node, before: Node) -> Node | None:
    """Return a Reshape or Transpose fused with the roll after it, or None."""
    op = node.op
    assert isinstance(op, RolledTranspose)
    if before.op.domain or before.op.op_type not in ("Reshape", "Transpose"):
        return None
    permutes = op.perm != tuple(range(len(op.perm)))
    x = graph.tensor(before.inputs[0])
    if any(isinstance(d, Dim) for d in x.shape):
        return None
    none = (0,) * x.rank
    if any(op.before):
        # Without a transpose, the roll before equals a roll after.
        rolled = graph.tensor(node.inputs[0]).shape
        if permutes or any(op.after) or op.shape != rolled:
            return None
        op = replace(op, before=(0,) * len(rolled), middle=rolled, perm=tuple(range(len(rolled))), after=op.before)
    if before.op.op_type == "Reshape":
        middle = op.middle if permutes else x.shape
        perm = op.perm if permutes else tuple(range(x.rank))
        made = replace(op, before=none, middle=middle, perm=perm)
    elif permutes:
        return None
    else:
        perm = tuple(before.op.permutation(x.rank))  # type: ignore[attr-defined]
        made = replace(op, before=none, middle=x.shape, perm=perm)
    return Node(made, before.inputs[:1], node.outputs, node.name)

"""Fuse norms, rotary embeddings and appends to caches of queries, keys and values into one dispatch.

    q = rotary(norm(view of x)),   k = concat(past_k, rotary(norm(view of y))),   v = concat(past_v, view of z)

become PreparedHeads, with any subset of these steps. One node prepares up to three tensors that do not depend on each
other. Views are the results of Transpose, Reshape, Split and Slice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyruntime.ir import Node, TensorType, TypedGraph, expression
from pyruntime.kernels import Target
from pyruntime.kernels.attention.description import HeadView
from pyruntime.kernels.attention.prepared_heads import MOST
from pyruntime.kernels.ir.indexing import broadcast_strides, contiguous
from pyruntime.ops.fused.prepared_heads import Part, PreparedHeads
from pyruntime.ops.fused.rotary import FusedRotary
from pyruntime.passes.graph_pass import Fact, graph_pass
from pyruntime.passes.match import Matcher
from pyruntime.passes.views import View, trace

__all__ = ["run"]

_LARGEST = 256
"""Maximum components of a head, which a kernel of 64 invocations supports."""


@dataclass(frozen=True, slots=True)
class _Rotary:
    """A rotary embedding: (turning, width, interleaved), its tables, and their strides over the rows."""

    numbers: tuple[int, int, bool]
    tables: tuple[str, str]
    angles: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _Found:
    """A node that produces prepared rows: their view and the steps. `inner` is the rotary embedding it includes."""

    node: Node
    view: View
    past: str = ""
    rotary: _Rotary | None = None
    weight: str = ""
    epsilon: float = 0.0
    inner: Node | None = None

    @property
    def steps(self) -> int:
        """Number of dispatches without fusion."""
        return bool(self.past) + (self.rotary is not None) + bool(self.weight)

    def fits(self, other: _Found) -> bool:
        """Return whether one dispatch can compute this tensor and `other`."""
        one, two = self.rotary, other.rotary
        same = one is None or two is None or (one.numbers, one.tables) == (two.numbers, two.tables)
        return same and (not self.weight or not other.weight or self.epsilon == other.epsilon)


@graph_pass(requires=(Fact.NO_DEAD_NODES, Fact.NORMS_FUSED, Fact.ROTARY_FUSED), breaks=(Fact.NO_DEAD_NODES,))
def run(graph: TypedGraph, target: Target) -> bool:
    """Replace all groups; returns whether there were any."""
    groups = [g for g in _groups(graph, _all(graph)) if len(g) > 1 or g[0].steps > 1]
    for group in groups:
        graph.substitute({**{found.node: [] for found in group}, group[-1].node: [_fused(group)]})
    graph.sort()
    return bool(groups)


def _all(graph: TypedGraph) -> list[_Found]:
    """Return all matches in graph order. A rotary embedding whose result is appended to a cache is part of it."""
    match = Matcher(graph)
    appended = [found for node in graph.nodes if (found := _appended(graph, match, node))]
    inner = {found.inner for found in appended}
    turned = [found for n in graph.nodes if n not in inner and (found := _turned(graph, match, n))]
    return sorted((*appended, *turned), key=lambda found: graph.position(found.node))


def _appended(graph: TypedGraph, match: Matcher, node: Node) -> _Found | None:
    """Match a Concat of past and new rows."""
    if node.op.domain or node.op.op_type != "Concat" or len(node.inputs) != 2 or node.outputs[0] in graph.static:
        return None
    past, new = (graph.types[n] for n in node.inputs)
    if not isinstance(past, TensorType) or not isinstance(new, TensorType) or past.rank != 4:
        return None
    if node.op.axis % 4 != 2 or not _is_head(new) or set(node.inputs) & graph.static:  # type: ignore[attr-defined]
        return None
    view = trace(graph, node.inputs[1])
    found = _Found(node, view, node.inputs[0])
    maker = graph.producer(view.source)
    if maker is not None and match.read_once(view.source) and match.read_once(node.inputs[1]):
        rotary = _turned(graph, match, maker)
        moved = _moved(view, rotary.view.shape, rotary.view) if rotary is not None and view.scale == 1 else None
        if rotary is not None and rotary.rotary is not None and moved is not None:
            angles = tuple(rotary.rotary.angles[j] if j >= 0 else 0 for j in moved[1])
            turned = replace(rotary.rotary, angles=angles)
            return replace(rotary, node=node, view=moved[0], past=node.inputs[0], rotary=turned, inner=maker)
    found = _normed(graph, match, found)
    if found.view.scale != 1 or (found.steps == 1 and past.size == 0 and view == View.whole(view.source, new)):
        return None
    return found


def _turned(graph: TypedGraph, match: Matcher, node: Node) -> _Found | None:
    """Match a rotary embedding of heads [B, H, N, D]."""
    op = node.op
    if not isinstance(op, FusedRotary) or len(op.y_shape) != 4 or not _is_head(graph.tensor(node.outputs[0])):
        return None
    x, cosines, sines = node.inputs
    angles = broadcast_strides(graph.tensor(cosines).shape, (*op.sizes[:3], op.width))
    rotary = _Rotary((op.turning, op.width, op.interleaved), (cosines, sines), tuple(angles))
    view = View(x, op.sizes, op.view.base, op.view.strides)
    return _normed(graph, match, _Found(node, view, rotary=rotary))


def _is_head(kind: TensorType) -> bool:
    size = kind.shape[-1] if kind.rank == 4 else 0
    fits = isinstance(size, int) and 0 < size <= _LARGEST and size % 4 == 0
    return fits and kind.dtype.is_float and not kind.dtype.is_wide


def _normed(graph: TypedGraph, match: Matcher, found: _Found) -> _Found:
    """Include the norm that produces the rows of `found`, if it has no other consumers."""
    node = match.producer(found.view.source, "RMSNormalization")
    if node is None or not match.read_once(found.view.source) or found.view.scale != 1:
        return found
    x, weight, y = (graph.tensor(n) for n in (*node.inputs[:2], node.outputs[0]))
    size = y.shape[-1] if y.rank else 0
    is_last = node.op.axis % max(y.rank, 1) == y.rank - 1  # type: ignore[attr-defined]
    if not is_last or size != found.view.shape[-1] or weight.shape != (size,) or x.dtype is not y.dtype:
        return found
    inner = trace(graph, node.inputs[0])
    moved = _moved(found.view, y.shape, inner) if inner.scale == 1 else None
    if moved is None:
        return found
    return replace(found, view=moved[0], weight=node.inputs[1], epsilon=node.op.epsilon)  # type: ignore[attr-defined]


def _moved(outer: View, shape: Sequence[Any], inner: View) -> tuple[View, list[int]] | None:
    """Return `outer`, a view of a tensor of `shape` which is the view `inner`, as a view of inner's source.

    Also returns the dimension of `shape` for each of outer's, -1 for size 1. None if outer does more than permute
    dimensions and drop those of size 1. Symbolic sizes are compared as expressions, not by their current values.
    """
    sizes, steps = [expression(n) for n in shape], [expression(n) for n in contiguous(shape)]
    order = []
    for size, step in zip(map(expression, outer.shape), map(expression, outer.strides), strict=True):
        same = (j for j in range(len(shape)) if sizes[j] == size and steps[j] == step and size != expression(1))
        order.append(next(same, -1))
    alone = [j for j, size in enumerate(sizes) if size != expression(1)]
    if expression(outer.base) != expression(0) or sorted(j for j in order if j >= 0) != alone:
        return None
    if not order or order[-1] != len(shape) - 1:
        return None
    strides = tuple(inner.strides[j] if j >= 0 else 0 for j in order)
    return View(inner.source, outer.shape, inner.base, strides), order


def _groups(graph: TypedGraph, found: Sequence[_Found]) -> list[list[_Found]]:
    """Group adjacent matches that do not depend on each other; each group becomes one dispatch."""
    groups: list[list[_Found]] = []
    numbers = {f.node: i for i, f in enumerate(found)}
    depends: dict[str, int] = {}  # value -> bit set of the matches that it depends on
    group_bits = 0
    for node in graph.nodes:
        bits = 0
        for name in node.inputs:
            bits |= depends.get(name, 0)
        number = numbers.get(node)
        if number is not None:
            one = found[number]
            last = groups[-1] if groups else []
            joins = 0 < len(last) < MOST and not bits & group_bits and all(other.fits(one) for other in last)
            if joins:
                last.append(one)
            else:
                groups.append([one])
                group_bits = 0
            group_bits |= 1 << number
            bits |= 1 << number
        depends.update(dict.fromkeys(node.outputs, bits))
    return groups


def _fused(group: Sequence[_Found]) -> Node:
    """Return the PreparedHeads node of a group."""
    inputs: list[str] = []

    def given(name: str) -> int:
        if not name:
            return -1
        if name not in inputs:
            inputs.append(name)
        return inputs.index(name)

    parts: list[Part] = []
    rotary = next((found.rotary for found in group if found.rotary is not None), None)
    for found in group:
        a, b, c, d = found.view.strides
        batch, heads, rows, size = found.view.shape
        turn = found.rotary
        angles = None if turn is None else (turn.angles[0], turn.angles[1], turn.angles[2], turn.angles[3])
        view, sizes = HeadView(found.view.base, (a, b, c, d)), (batch, heads, rows, size)
        parts.append(Part(given(found.view.source), view, sizes, given(found.past), given(found.weight), angles))
    epsilon = next((found.epsilon for found in group if found.weight), 0.0)
    op = PreparedHeads(parts=tuple(parts), epsilon=epsilon, present=(True,) * len(parts))
    if rotary is not None:
        turning, width, interleaved = rotary.numbers
        tables = given(rotary.tables[0]), given(rotary.tables[1])
        op = replace(op, tables=tables, turning=turning, width=width, interleaved=interleaved)
    return Node(op, tuple(inputs), tuple(found.node.outputs[0] for found in group), group[0].node.name)

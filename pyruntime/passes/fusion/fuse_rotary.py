"""Fuse decomposed rotary embeddings into one kernel that reads its heads as strided views.

    x * cos + rotate(x) * sin,  rotate(x) = concat(-x[half:], x[:half])             torch: llama, gpt-neox, most others
                                rotate(x) = reshape(concat(-x[1::2], x[0::2]))      interleaved: gpt-j, cohere
    concat(a * cos - b * sin, b * cos + a * sin)    with a, b the halves of x, or interleaved, reshaped

A Concat with the rest of a head may follow, if only the first components are rotated. Tables are any values that
broadcast to x; tensors are floats of rank 2 to 4. Source: Su et al., 2021.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyruntime.ir import Node, TensorType, TypedGraph
from pyruntime.kernels import Target
from pyruntime.kernels.attention.description import HeadView
from pyruntime.ops.fused.rotary import FusedRotary
from pyruntime.passes.graph_pass import Fact, node_pass
from pyruntime.passes.match import Matcher, made_by
from pyruntime.passes.views import View, trace

__all__ = ["run"]

_FIRST = made_by("Sub", made_by("Mul", "a", "cos"), made_by("Mul", "b", "sin"))
_SECOND = made_by("Add", made_by("Mul", "b", "cos"), made_by("Mul", "a", "sin"))


@node_pass(requires=(Fact.SHAPES_CONSTANT,), ensures=(Fact.ROTARY_FUSED,), breaks=(Fact.NO_DEAD_NODES,))
def run(match: Matcher, target: Target, node: Node) -> dict[Node, list[Node]] | None:
    """Replace the last node of a rotary embedding by one operator."""
    graph = match.graph
    if node.op.domain or node.outputs[0] in graph.static or node.op.op_type not in ("Add", "Concat", "Reshape"):
        return None
    made = (_with_rest(graph, match, node, _Turn(*found)) for found in _turns(graph, match, node))
    return next(filter(None, made), None)


class _Turn:
    """A rotary embedding: view of x, tables, and whether pairs are interleaved."""

    def __init__(self, view: View, cos: str, sin: str, interleaved: bool) -> None:
        self.view, self.cos, self.sin, self.interleaved = view, cos, sin, interleaved


def _turns(graph: TypedGraph, match: Matcher, node: Node) -> Iterator[tuple[View, str, str, bool]]:
    """Yield the rotary embeddings that `node` may compute, in either form."""
    if node.op.op_type == "Add":
        products = [match.producer(n, "Mul") for n in node.inputs]
        if products[0] is None or products[1] is None:
            return
        for own, across in (products, products[::-1]):
            assert own is not None and across is not None
            for i, j in ((0, 0), (0, 1), (1, 0), (1, 1)):
                found = _rotated(graph, match, across.inputs[j])
                if found is None:
                    continue
                view = _trace(graph, match, own.inputs[i])
                if view is not None and _is_rotation(view, *found):
                    yield view, own.inputs[1 - i], across.inputs[1 - j], found[2]
        return
    yield from _by_halves(graph, match, node)


def _rotated(graph: TypedGraph, match: Matcher, name: str) -> tuple[View, View, bool] | None:
    """Return the views (negated, other) that `name` concatenates, and whether they are interleaved."""
    parts = _joined(graph, match, name)
    if parts is None:
        return None
    (first, second), interleaved = parts
    negated = match.producer(first, "Neg")
    if negated is None:
        return None
    views = _trace(graph, match, negated.inputs[0]), _trace(graph, match, second)
    return None if views[0] is None or views[1] is None else (views[0], views[1], interleaved)


def _joined(graph: TypedGraph, match: Matcher, name: str) -> tuple[list[str], bool] | None:
    """Return the two values that `name` concatenates along its last dimension, and whether they are interleaved."""
    node = match.producer(name, "Concat", "Reshape")
    interleaved = False
    if node is not None and node.op.op_type == "Reshape":
        shape = graph.tensor(name).shape
        node, interleaved = match.producer(node.inputs[0], "Concat"), True
        if node is None or graph.tensor(node.outputs[0]).shape[:-2] != shape[:-1]:
            return None
    if node is None or len(node.inputs) != 2 or len(set(node.inputs)) != 2:
        return None
    kinds = [graph.tensor(n) for n in (*node.inputs, node.outputs[0])]
    rank = kinds[2].rank
    if node.op.axis % rank != rank - 1 or kinds[0].shape != kinds[1].shape:  # type: ignore[attr-defined]
        return None
    if not interleaved:
        return list(node.inputs), False
    parts = [_before_unsqueeze(graph, match, n) for n in node.inputs]
    return None if None in parts else ([n for n in parts if n], True)


def _before_unsqueeze(graph: TypedGraph, match: Matcher, name: str) -> str | None:
    """Return x if `name` is x with a last dimension of size 1 appended."""
    node = match.producer(name, "Unsqueeze", "Reshape", "Neg")
    if node is None:
        return None
    if node.op.op_type == "Neg":
        return None
    x, y = graph.tensor(node.inputs[0]), graph.tensor(name)
    return node.inputs[0] if y.shape == (*x.shape, 1) else None


def _trace(graph: TypedGraph, match: Matcher, name: str) -> View | None:
    """Return `name` as a view of rank 2 to 4 without scale, or None."""
    kind = graph.types.get(name)
    if not isinstance(kind, TensorType) or not kind.dtype.is_float or kind.dtype.is_wide or not 2 <= kind.rank <= 4:
        return None
    view = trace(graph, name)
    return view if view.scale == 1 else None


def _is_rotation(x: View, negated: View, other: View, interleaved: bool) -> bool:
    """Whether `other` and `negated` are the first and second components of x's pairs."""
    first, second = _pairs(x, interleaved)
    return first == other and second == negated


def _pairs(x: View, interleaved: bool) -> tuple[View | None, View | None]:
    """Return the views of the first and second components of x's pairs."""
    last, size = len(x.shape) - 1, x.shape[-1]
    if not isinstance(size, int) or size % 2 or not size:
        return None, None
    half = size // 2
    if interleaved:
        return x.sliced(last, 0, half, 2), x.sliced(last, 1, half, 2)
    return x.sliced(last, 0, half), x.sliced(last, half, half)


def _by_halves(graph: TypedGraph, match: Matcher, node: Node) -> Iterator[tuple[View, str, str, bool]]:
    """Yield matches of concat(a cos - b sin, b cos + a sin)."""
    parts = _joined(graph, match, node.outputs[0])
    if parts is None:
        return
    (one, two), interleaved = parts
    for first in match.bind(one, _FIRST):
        for found in match.bind(two, _SECOND, first):
            views = _trace(graph, match, found["a"]), _trace(graph, match, found["b"])
            whole = None if views[0] is None or views[1] is None else _in_pairs(views[0], views[1], interleaved)
            if whole is not None:
                yield whole, found["cos"], found["sin"], interleaved


def _in_pairs(a: View, b: View, interleaved: bool) -> View | None:
    """Return the view whose pairs have components a and b, or None."""
    size = a.shape[-1]
    if not isinstance(size, int) or not size:
        return None
    step = a.strides[-1]
    if interleaved and step % 2:
        return None
    step = step // 2 if interleaved else step
    whole = View(a.source, (*a.shape[:-1], 2 * size), a.base, (*a.strides[:-1], step))
    return whole if _pairs(whole, interleaved) == (a, b) else None


def _with_rest(graph: TypedGraph, match: Matcher, node: Node, turn: _Turn) -> dict[Node, list[Node]] | None:
    """Return the replacement of the last node of the pattern, including the rest of the heads."""
    view, cos = turn.view, graph.tensor(turn.cos)
    sin, y = graph.tensor(turn.sin), graph.tensor(node.outputs[0])
    turning = view.shape[-1]
    width = cos.shape[-1] if cos.rank else 0
    if cos.shape != sin.shape or cos.rank > y.rank or y.shape != view.shape or len({cos.dtype, sin.dtype, y.dtype}) > 1:
        return None
    if width not in (turning, turning // 2) or (node.op.op_type == "Add") != (width == turning):
        return None
    padded = (1,) * (y.rank - cos.rank) + cos.shape
    if any(d not in (1, full) for d, full in zip(padded[:-1], y.shape[:-1], strict=True)):
        return None
    last = node
    after = match.only_consumer(node.outputs[0], "Concat")
    if after is not None and len(after.inputs) == 2 and after.inputs[0] == node.outputs[0]:
        rest, whole = _trace(graph, match, after.inputs[1]), graph.tensor(after.outputs[0])
        heads = View(view.source, whole.shape, view.base, view.strides)
        is_last = after.op.axis % y.rank == y.rank - 1  # type: ignore[attr-defined]
        if rest is not None and is_last and heads.sliced(y.rank - 1, turning, rest.shape[-1]) == rest:
            last, view = after, heads
    shape = (1,) * (4 - y.rank) + view.shape
    a, b, c, d = (0,) * (4 - y.rank) + view.strides
    op = FusedRotary(
        sizes=(shape[0], shape[1], shape[2], shape[3]),
        view=HeadView(view.base, (a, b, c, d)),
        turning=turning,
        width=width,
        y_shape=view.shape,
        interleaved=turn.interleaved,
    )
    return {last: [Node(op, (view.source, turn.cos, turn.sin), last.outputs, last.name)]}

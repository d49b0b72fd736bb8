"""Fuse scores, scale, mask, softmax and values into one flash attention kernel.

Matches matmul(P, V) with P = softmax(S) over the last axis, or torch's where(isnan(softmax(S)), 0, softmax(S)); S =
scores [+ mask] [* or / a constant] in any order, or c * tanh(scores / c) [+ mask], the softcap; scores = matmul(a * Q,
b * K transposed) with constant a, b; float tensors, heads of at most 128 components.

Reshapes and transposes of Q, K, V and the result become strides of the kernel. Keys and values repeated for a group of
heads (Expand and Reshape, torch's repeat_kv) are read without the repetition. Two masks are added once, in a node
shared by all attentions that use both.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyruntime.ir import Node, TensorType, TypedGraph
from pyruntime.kernels import Target
from pyruntime.kernels.attention.attention import WIDEST_HEAD
from pyruntime.kernels.attention.description import HeadView
from pyruntime.kernels.ir.indexing import broadcast_shapes
from pyruntime.ops.fused.attention import FusedAttention
from pyruntime.ops.registry import newest
from pyruntime.passes.graph_pass import Fact, graph_pass
from pyruntime.passes.match import Matcher, made_by
from pyruntime.passes.views import View, shared_heads, trace

__all__ = ["run"]

_ZERO_WHERE_EMPTY = made_by("Where", made_by("IsNaN", "softmax"), 0.0, "softmax")


@dataclass(slots=True)
class _Scores:
    """Operators between the score product and the softmax."""

    product: Node
    scale: float
    masks: list[str]
    empty_zero: bool
    cap: float


@graph_pass(ensures=(Fact.ATTENTION_FUSED,), breaks=(Fact.NO_DEAD_NODES,))
def run(graph: TypedGraph, target: Target) -> bool:
    """Replace all matches; returns whether there were any."""
    if not target.allows("attention_flash"):
        return False
    match = Matcher(graph)
    fused: dict[Node, list[Node]] = {}
    sums: dict[frozenset[str], Node] = {}
    for node in graph.nodes:
        if node.op.domain == "" and node.op.op_type == "MatMul":
            found = _attention(graph, match, node, sums)
            if found:
                last, attention = found
                fused[last] = [attention]
    graph.substitute(fused)
    for total in sums.values():
        for first in graph.consumers(total.outputs[0])[:1]:
            graph.insert_before(first, total)
    return bool(fused)


def _attention(
    graph: TypedGraph, match: Matcher, node: Node, sums: dict[frozenset[str], Node]
) -> tuple[Node, Node] | None:
    """Return the node whose output the fused node computes, and the fused node.

    Args:
        sums: two masks -> the node that adds them.
    """
    kind = graph.types[node.outputs[0]]
    if not isinstance(kind, TensorType) or not kind.dtype.is_float or kind.dtype.is_wide or kind.rank not in (3, 4):
        return None
    scores = _scores(graph, match, node.inputs[0])
    if scores is None:
        return None
    rank = kind.rank
    names = (*scores.product.inputs, node.inputs[1])
    views, group = [trace(graph, n) for n in names], 1
    shared = [shared_heads(graph, n) if rank == 4 else None for n in names[1:]]
    if shared[0] is not None and shared[1] is not None and shared[0][1] == shared[1][1]:
        views, group = [views[0], shared[0][0], shared[1][0]], shared[0][1]
    if any(len(v.shape) != rank for v in views) or views[2].scale != 1:
        return None
    queries, keys, values = (_as_heads(v) for v in views)
    keys = keys.transposed((0, 1, 3, 2))
    B, H, M, D = queries.shape
    N, E = values.shape[2:]
    G = H // group
    if keys.shape != (B, G, N, D) or values.shape[:3] != (B, G, N) or max(D, E) > WIDEST_HEAD or G * group != H:
        return None
    last, y_view, y_shape = _result(graph, match, node, (B, H, M, E))
    masks = [_mask(graph, m, rank, (B, H, M, N)) for m in scores.masks]
    if None in masks or len(masks) > 2:
        return None
    mask = _sum(graph, masks[0], masks[1], sums) if masks[1:] and masks[0] and masks[1] else (masks or [""])[0]
    op = FusedAttention(
        sizes=(B, H, M, N, D, E),
        q_view=_head_view(queries),
        k_view=_head_view(keys),
        v_view=_head_view(values),
        y_view=y_view,
        y_shape=y_shape,
        scale=scores.scale * views[0].scale * views[1].scale,
        empty_zero=scores.empty_zero,
        group=group,
        cap=scores.cap,
    )
    inputs = [queries.source, keys.source, values.source, *([mask] if mask else [])]
    return last, Node(op, tuple(inputs), last.outputs, node.name or last.name)


def _scores(graph: TypedGraph, match: Matcher, weights: str) -> _Scores | None:
    """Match the operators that produce the softmax `weights`."""
    found = next(match.bind(weights, _ZERO_WHERE_EMPTY), None)
    softmax = match.producer(weights if found is None else found["softmax"], "Softmax")
    if softmax is None or (found is None and not match.read_once(weights)):
        return None
    if softmax.op.opsets.start < 13:  # type: ignore[attr-defined]
        return None
    rank = graph.tensor(softmax.inputs[0]).rank
    if softmax.op.axis % rank != rank - 1:  # type: ignore[attr-defined]
        return None
    scale, cap, name = 1.0, 0.0, softmax.inputs[0]
    masks: list[str] = []
    while match.read_once(name):
        step = match.producer(name, "MatMul", "Add", "Mul", "Div", "Tanh")
        if step is None:
            return None
        if step.op.op_type == "MatMul":
            return _Scores(step, scale, masks, found is not None, cap)
        if step.op.op_type == "Tanh":
            if cap or not scale > 0:
                return None
            name, cap = step.inputs[0], scale  # scale * tanh(x) is scale * x with a softcap of scale
            continue
        if step.op.op_type == "Add":
            scored = next((n for n in step.inputs if _leads_to_product(match, n)), None)
            if scored is None or scale != 1.0 or cap:
                return None
            name = scored
            masks.append(match.other(step, scored))
            continue
        if step.op.op_type == "Div":
            number = match.scalar(step.inputs[1])
            factor = (step.inputs[0], 1 / number) if number else None
        else:
            factor = match.with_scalar(step)
        if factor is None:
            return None
        name, scale = factor[0], scale * factor[1]
    return None


def _leads_to_product(match: Matcher, name: str) -> bool:
    """Whether `name` is computed from a MatMul by operators that `_scores` matches."""
    node = match.producer(name, "MatMul", "Mul", "Div", "Add", "Tanh")
    if node is None or node.op.op_type == "MatMul":
        return node is not None
    return match.read_once(name) and any(_leads_to_product(match, n) for n in node.inputs)


def _as_heads(view: View) -> View:
    """Return a view of rank 4, or of rank 3 with the batch as heads, as [B, H, M, D]."""
    if len(view.shape) == 4:
        return view
    return View(view.source, (1, *view.shape), view.base, (view.shape[0] * view.strides[0], *view.strides))


def _head_view(view: View) -> HeadView:
    a, b, c, d = view.strides
    return HeadView(view.base, (a, b, c, d))


def _mask(graph: TypedGraph, name: str, rank: int, shape: tuple[int, ...]) -> str | None:
    """Return the name of the mask, "" for none, or None if its shape does not fit."""
    if not name:
        return ""
    kind = graph.types[name]
    if not isinstance(kind, TensorType) or not kind.dtype.is_float or kind.rank > rank:
        return None
    if rank == 3 and kind.rank == 3 and kind.shape[0] not in (1, shape[1]):
        return None
    padded = (1,) * (4 - kind.rank) + kind.shape
    fits = all(d in (1, full) for d, full in zip(padded, shape, strict=True))
    return name if fits else None


def _sum(graph: TypedGraph, first: str, second: str, sums: dict[frozenset[str], Node]) -> str:
    """Return the name of the sum of two masks, one for all layers; it is static if both masks are."""
    known = sums.get(frozenset((first, second)))
    if known is not None:
        return known.outputs[0]
    kinds = [graph.tensor(n) for n in (first, second)]
    shape = broadcast_shapes(*(k.shape for k in kinds))
    is_static = first in graph.static and second in graph.static
    value = (lambda: kinds[0].value() + kinds[1].value()) if is_static else None
    name = graph.add_value(f"{first}.and_mask", TensorType(kinds[0].dtype, shape), value)
    sums[frozenset((first, second))] = Node(newest("Add"), (first, second), (name,), name)
    return name


def _result(
    graph: TypedGraph, match: Matcher, node: Node, shape: tuple[int, int, int, int]
) -> tuple[Node, HeadView, tuple[int, ...]]:
    """Return the last Transpose or Reshape of the result, and the view and shape in which the kernel stores it."""
    last = node
    kind = graph.tensor(node.outputs[0])
    heads = _as_heads(View.whole("", kind))
    order: tuple[int, ...] = (0, 1, 2, 3)
    while True:
        after = match.only_consumer(last.outputs[0], "Transpose", "Reshape")
        if after is None:
            break
        made = graph.tensor(after.outputs[0])
        if after.op.op_type == "Transpose" and order == (0, 1, 2, 3) and made.rank == 4:
            perm = after.op.permutation(4)  # type: ignore[attr-defined]
            if len(graph.tensor(last.outputs[0]).shape) != 4 or graph.tensor(last.outputs[0]).shape != shape:
                break
            order = tuple(perm.index(d) for d in range(4))
            whole = View.whole("", made)
            heads = whole.transposed(order)
        elif after.op.op_type == "Reshape":
            if order == (0, 1, 2, 3) and made.shape != shape and match.only_consumer(after.outputs[0], "Transpose"):
                break
        else:
            break
        last = after
    return last, _head_view(heads), graph.tensor(last.outputs[0]).shape

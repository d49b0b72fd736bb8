"""Strided views equivalent to Transpose, Reshape, Split, Slice, Gather and similar, so that consumers can skip these.

Multiplication by a constant is included, since consumers have a scale anyway. Element c of a view is element `base +
sum(c[d] * strides[d])` of its contiguous source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyruntime.ir import Node, TensorType, TypedGraph, ValueNeeded
from pyruntime.kernels.ir.indexing import contiguous

__all__ = ["View", "shared_heads", "trace"]


@dataclass(frozen=True, slots=True)
class View:
    """Strided view of the value `source` (base and strides in elements), multiplied by `scale`."""

    source: str
    shape: tuple[int, ...]
    base: int
    strides: tuple[int, ...]
    scale: float = 1.0

    @staticmethod
    def whole(name: str, kind: TensorType) -> View:
        """Return the view of a whole tensor."""
        return View(name, kind.shape, 0, contiguous(kind.shape))

    def transposed(self, perm: Sequence[int]) -> View:
        """Permute the dimensions."""
        return replace(self, shape=tuple(self.shape[p] for p in perm), strides=tuple(self.strides[p] for p in perm))

    def sliced(self, axis: int, start: int, size: int, step: int = 1) -> View:
        """Take a range along one axis."""
        shape, strides = list(self.shape), list(self.strides)
        base = self.base + start * strides[axis]
        shape[axis], strides[axis] = size, strides[axis] * step
        return View(self.source, tuple(shape), base, tuple(strides), self.scale)

    def reshaped(self, shape: Sequence[int]) -> View | None:
        """Return the view in another shape, or None if that is not a strided view."""
        old = [(d, s) for d, s in zip(self.shape, self.strides, strict=True) if d != 1]
        new = [d for d in shape if d != 1]
        strides: list[int] = []
        i = j = 0
        while i < len(old) and j < len(new):
            have, want, first, last = old[i][0], new[j], i, j
            while have != want:
                if have < want:
                    i += 1
                    if i == len(old):
                        return None
                    have *= old[i][0]
                else:
                    j += 1
                    if j == len(new):
                        return None
                    want *= new[j]
            for k in range(first, i):
                if old[k][1] != old[k + 1][0] * old[k + 1][1]:
                    return None
            step, group = old[i][1], list[int]()
            for d in reversed(new[last : j + 1]):
                group.append(step)
                step *= d
            strides += reversed(group)
            i, j = i + 1, j + 1
        if i != len(old) or j != len(new):
            return None
        left = iter(strides)
        made = [next(left) if d != 1 else 0 for d in shape]
        # Strides of size-1 dimensions are arbitrary; these values keep dimensions mergeable.
        step = 1
        for d in range(len(made) - 1, -1, -1):
            if shape[d] == 1:
                made[d] = step
            step = made[d] * shape[d]
        return View(self.source, tuple(shape), self.base, tuple(made), self.scale)


def trace(graph: TypedGraph, name: str) -> View:
    """Return the value `name` as a view of another value, or of itself."""
    node = graph.producer(name)
    kind = graph.tensor(name)
    view: View | None = None
    if node is not None and node.op.domain == "" and name not in graph.static:
        view = _through(graph, node, name)
    return view or View.whole(name, kind)


def shared_heads(graph: TypedGraph, name: str) -> tuple[View, int] | None:
    """Return (view [B, G, ..], n) if `name` is that view with each of its G heads repeated n times, [B, G * n, ..].

    A Transpose of the last two dimensions and constant factors may follow.
    """
    node = graph.producer(name)
    if node is None or node.op.domain or name in graph.static or graph.tensor(name).rank != 4:
        return None
    op: Any = node.op
    if op.op_type == "Transpose" and tuple(op.permutation(4)[:2]) == (0, 1):
        inner = shared_heads(graph, node.inputs[0])
        return None if inner is None else (inner[0].transposed(op.permutation(4)), inner[1])
    if op.op_type in ("Mul", "Div"):
        factor = _factor(graph, node)
        inner = shared_heads(graph, factor[0]) if factor else None
        return (
            None if factor is None or inner is None else (replace(inner[0], scale=inner[0].scale * factor[1]), inner[1])
        )
    if op.op_type != "Reshape":
        return None
    expand = graph.producer(node.inputs[0])
    if expand is None or expand.op.domain or expand.op.op_type != "Expand":
        return None
    x, wide = trace(graph, expand.inputs[0]), graph.tensor(expand.outputs[0]).shape
    kind, made = graph.tensor(expand.inputs[0]), graph.tensor(name).shape
    if kind.rank != 5 or len(wide) != 5 or kind.shape != (*wide[:2], 1, *wide[3:]) or not isinstance(wide[2], int):
        return None
    if made != (wide[0], wide[1] * wide[2], *wide[3:]):
        return None
    shape = (*x.shape[:2], *x.shape[3:])
    return View(x.source, shape, x.base, (*x.strides[:2], *x.strides[3:]), x.scale), wide[2]


def _through(graph: TypedGraph, node: Node, name: str) -> View | None:
    """Return the view that a node gives of its input, or None."""
    op, kind = node.op.op_type, graph.tensor(name)
    if op == "Transpose":
        inner = trace(graph, node.inputs[0])
        return inner.transposed(node.op.permutation(len(inner.shape)))  # type: ignore[attr-defined]
    if op in ("Reshape", "Flatten", "Squeeze", "Unsqueeze"):
        return trace(graph, node.inputs[0]).reshaped(kind.shape)
    if op == "Identity":
        return trace(graph, node.inputs[0])
    if op in ("Mul", "Div"):
        return _scaled(graph, node)
    if op == "Split":
        inner = trace(graph, node.inputs[0])
        axis = node.op.axis % len(inner.shape)  # type: ignore[attr-defined]
        before = node.outputs[: node.outputs.index(name)]
        start = sum(graph.tensor(n).shape[axis] for n in before if n)
        return inner.sliced(axis, start, kind.shape[axis]) if all(before) else None
    if op == "Slice" and len(node.inputs) > 1:
        return _slice(graph, node, name)
    if op == "Gather":
        return _gathered(graph, node)
    return None


def _scaled(graph: TypedGraph, node: Node) -> View | None:
    """Return the view for a Mul or Div by a constant scalar."""
    found = _factor(graph, node)
    if found is None:
        return None
    inner = trace(graph, found[0])
    return replace(inner, scale=inner.scale * found[1])


def _factor(graph: TypedGraph, node: Node) -> tuple[str, float] | None:
    """Split x * number, or x / number, with a constant scalar into (x, factor)."""
    for i in (0, 1) if node.op.op_type == "Mul" else (1,):
        kind, name = graph.tensor(node.inputs[i]), node.inputs[1 - i]
        if (
            node.inputs[i] in graph.static
            and kind.size == 1
            and graph.tensor(name).shape == graph.tensor(node.outputs[0]).shape
        ):
            number = float(kind.value().reshape(-1)[0])
            if node.op.op_type == "Div" and number == 0:
                return None
            return name, number if node.op.op_type == "Mul" else 1 / number
    return None


def _slice(graph: TypedGraph, node: Node, name: str) -> View | None:
    try:
        given = [graph.tensor(n).ints() if n else None for n in node.inputs[1:]]
    except ValueNeeded:
        return None
    inner = trace(graph, node.inputs[0])
    starts = given[0] or ()
    axes = given[2] if len(given) > 2 and given[2] is not None else tuple(range(len(starts)))
    steps = given[3] if len(given) > 3 and given[3] is not None else (1,) * len(starts)
    for start, axis, step in zip(starts, axes, steps, strict=True):
        if step < 1:
            return None
        size = inner.shape[axis]
        first = min(max(start + size if start < 0 else start, 0), size)
        inner = inner.sliced(axis % len(inner.shape), first, graph.tensor(name).shape[axis], step)
    return inner


def _gathered(graph: TypedGraph, node: Node) -> View | None:
    """Return the view for a Gather with one constant index, or indices with equal positive steps, else None."""
    places = graph.tensor(node.inputs[1])
    if places.rank > 1 or node.inputs[1] not in graph.static:
        return None
    indices = places.ints()
    inner = trace(graph, node.inputs[0])
    axis = node.op.axis % len(inner.shape)  # type: ignore[attr-defined]
    size = inner.shape[axis]
    if not indices or not isinstance(size, int):
        return None
    if not all(-size <= i < size for i in indices):
        return None
    at = [i % size for i in indices]
    step = at[1] - at[0] if len(at) > 1 else 1
    if step < 1 or at != list(range(at[0], at[0] + step * len(at), step)):
        return None
    view = inner.sliced(axis, at[0], len(at), step)
    if places.rank == 1:
        return view
    without = [d for d in range(len(view.shape)) if d != axis]
    return replace(view, shape=tuple(view.shape[d] for d in without), strides=tuple(view.strides[d] for d in without))

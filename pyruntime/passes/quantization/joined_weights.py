"""Concatenate the packed weights of several products on the GPU, once, without unpacking."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyruntime.ir import Node, TensorType, TypedGraph
from pyruntime.passes.writer import joined, reshaped

__all__ = ["rows_concatenated", "rows_interleaved"]

Joined = tuple[list[Node], list[str]]
"""The nodes that concatenate, and the names of the weights, scales and, if present, zero points."""


def rows_interleaved(graph: TypedGraph, sides: Sequence[Sequence[str]], rows: int, limit: int) -> Joined | None:
    """Interleave the weights, scales and zero points of products of `rows` columns each: row 0 of each, then row 1...

    Returns None if the operands do not match or the weights exceed `limit` bytes.
    """
    return _all(graph, sides, limit, lambda names: _joined(graph, names, rows, interleaved=True))


def rows_concatenated(
    graph: TypedGraph, sides: Sequence[Sequence[str]], counts: Sequence[int], limit: int
) -> Joined | None:
    """Like `rows_interleaved`, but all rows of the first product, then all of the next; `counts` rows of each."""
    return _all(graph, sides, limit, lambda names: _joined(graph, names, counts, interleaved=False))


def _all(
    graph: TypedGraph, sides: Sequence[Sequence[str]], limit: int, join: Callable[[list[str]], Joined | None]
) -> Joined | None:
    if sum(graph.tensor(side[0]).nbytes for side in sides) > limit:
        return None
    nodes: list[Node] = []
    weights: list[str] = []
    for slot in range(3):
        names = [side[slot] for side in sides]
        if not any(names):
            continue
        made = join(names) if all(names) else None
        if made is None:
            return None
        nodes += made[0]
        weights += made[1]
    return nodes, weights


def _joined(graph: TypedGraph, names: Sequence[str], rows: int | Sequence[int], interleaved: bool) -> Joined | None:
    """Concatenate static tensors by rows; None if one is not static or they differ in type or row length.

    The result's shape may differ from [rows, ...]: operators with packed weights check the number of elements only.
    """
    counts = [rows] * len(names) if isinstance(rows, int) else list(rows)
    kinds = [graph.tensor(n) for n in names]
    if any(n not in graph.static for n in names) or len({k.dtype for k in kinds}) > 1:
        return None
    if any(k.size % c for k, c in zip(kinds, counts, strict=True)):
        return None
    if len({k.size // c for k, c in zip(kinds, counts, strict=True)}) > 1:
        return None
    nodes: list[Node] = []
    rows_first: list[str] = []
    for name, kind, count in zip(names, kinds, counts, strict=True):
        if kind.rank < 2 or kind.shape[0] != count or kind.shape[1:] != kinds[0].shape[1:]:
            nodes.append(_rows(graph, name, kind, count))
            name = nodes[-1].outputs[0]
        rows_first.append(name)
    if len({graph.tensor(n).shape[1:] for n in rows_first}) > 1:
        return None
    nodes.append(joined(graph, rows_first, 1 if interleaved else 0))
    return nodes, list(nodes[-1].outputs)


def _rows(graph: TypedGraph, name: str, kind: TensorType, count: int) -> Node:
    """Reshape a static tensor to [count, -1]."""
    shape = (count, kind.size // count)
    result = graph.add_value(f"{name}.rows", kind.with_shape(*shape), lambda: kind.value().reshape(shape))
    return reshaped(graph, name, result, shape)

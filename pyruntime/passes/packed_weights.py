"""Packed weights of several products as those of one: joined on the GPU, once, packed as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pyruntime.ir import Array, DType, Node, TensorType, TypedGraph
from pyruntime.ops.registry import newest

__all__ = ["rows_behind", "rows_in_turn"]

Joined = tuple[list[Node], list[str]]
"""The nodes that join, and the names of weights, scales and, where there are some, zero points."""


def rows_in_turn(graph: TypedGraph, sides: Sequence[Sequence[str]], rows: int) -> Joined | None:
    """Weights, scales and zero points of products of `rows` columns each: row 0 of each, then row 1, and so on."""
    return _all(graph, sides, lambda names: _joined(graph, names, rows, in_turn=True))


def rows_behind(graph: TypedGraph, sides: Sequence[Sequence[str]], counts: Sequence[int]) -> Joined | None:
    """The same with all rows of one behind those of the other; `counts` of them."""
    return _all(graph, sides, lambda names: _joined(graph, names, counts, in_turn=False))


def _all(graph: TypedGraph, sides: Sequence[Sequence[str]], join: Callable[[list[str]], Joined | None]) -> Joined | None:
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


def _joined(graph: TypedGraph, names: Sequence[str], rows: int | Sequence[int], in_turn: bool) -> Joined | None:
    """One static tensor [rows of all, ...] of several; None where they are not static, or not alike."""
    counts = [rows] * len(names) if isinstance(rows, int) else list(rows)
    kinds = [graph.tensor(n) for n in names]
    if any(n not in graph.static for n in names) or len({k.dtype for k in kinds}) > 1:
        return None
    if any(k.size % c for k, c in zip(kinds, counts, strict=True)):
        return None
    widths = {k.size // c for k, c in zip(kinds, counts, strict=True)}
    if len(widths) > 1:
        return None
    (width,) = widths
    nodes: list[Node] = []
    flat: list[str] = []
    for name, count in zip(names, counts, strict=True):
        nodes.append(_reshaped(graph, name, (count, width)))
        flat.append(nodes[-1].outputs[0])
    axis = 1 if in_turn else 0
    shape = (counts[0], width * len(names)) if in_turn else (sum(counts), width)

    def value() -> Array:
        made: Array = np.concatenate([graph.tensor(n).value() for n in flat], axis=axis)
        return made

    result = graph.fresh(f"{names[0]}.joined")
    graph.types[result] = TensorType(kinds[0].dtype, shape, value, result)
    graph.static.add(result)
    nodes.append(Node(newest("Concat", axis=axis), tuple(flat), (result,), result))
    total = sum(counts)
    if in_turn:
        nodes.append(_reshaped(graph, result, (total, width)))
    return nodes, [nodes[-1].outputs[0]]


def _reshaped(graph: TypedGraph, name: str, shape: tuple[int, ...]) -> Node:
    """A static tensor in another shape."""
    kind = graph.tensor(name)
    result = graph.fresh(f"{name}.rows")
    graph.types[result] = TensorType(kind.dtype, shape, lambda: kind.value().reshape(shape), result)
    graph.static.add(result)
    wanted = graph.add_constant(np.array(shape, np.int64), DType.INT64, f"{result}.shape")
    return Node(newest("Reshape"), (name, wanted), (result,), result)

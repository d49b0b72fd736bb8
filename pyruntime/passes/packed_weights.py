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


def _all(
    graph: TypedGraph, sides: Sequence[Sequence[str]], join: Callable[[list[str]], Joined | None]
) -> Joined | None:
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
    """One static tensor of several, whose elements are the rows of all; None where they are not static, or not alike.

    Its shape is not that of the rows: operators with packed weights ask for their number of elements alone.
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
            nodes.append(_reshaped(graph, name, (count, kind.size // count)))
            name = nodes[-1].outputs[0]
        rows_first.append(name)
    shapes = [graph.tensor(n).shape for n in rows_first]
    if len({s[1:] for s in shapes}) > 1:
        return None
    axis = 1 if in_turn else 0
    shape = list(shapes[0])
    shape[axis] = sum(s[axis] for s in shapes)

    def value() -> Array:
        made: Array = np.concatenate([graph.tensor(n).value() for n in rows_first], axis=axis)
        return made

    result = graph.fresh(f"{names[0]}.joined")
    graph.types[result] = TensorType(kinds[0].dtype, tuple(shape), value, result)
    graph.static.add(result)
    nodes.append(Node(newest("Concat", axis=axis), tuple(rows_first), (result,), result))
    return nodes, [result]


def _reshaped(graph: TypedGraph, name: str, shape: tuple[int, ...]) -> Node:
    """A static tensor in another shape."""
    kind = graph.tensor(name)
    result = graph.fresh(f"{name}.rows")
    graph.types[result] = TensorType(kind.dtype, shape, lambda: kind.value().reshape(shape), result)
    graph.static.add(result)
    wanted = graph.add_constant(np.array(shape, np.int64), DType.INT64, f"{result}.shape")
    return Node(newest("Reshape"), (name, wanted), (result,), result)

"""Query, key and value projections, products of one input by several constants: what passes that merge them share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np

from pyruntime.ir import DType, Node, TypedGraph
from pyruntime.ops.registry import newest
from pyruntime.passes.match import Matcher

__all__ = ["apart", "leads_to_heads", "merge_groups"]

Projection = TypeVar("Projection")


def leads_to_heads(match: Matcher, result: str) -> bool:
    """True where a Reshape and a Transpose follow; a factor before it, or a norm between them, or neither."""
    after = match.only_consumer(result, "Mul", "Div", "Reshape")
    if after is not None and after.op.op_type != "Reshape":
        after = match.only_consumer(after.outputs[0], "Reshape") if match.with_scalar(after) else None
    heads = match.only_consumer(after.outputs[0], "Transpose", "RMSNormalization") if after is not None else None
    if heads is not None and heads.op.op_type == "RMSNormalization":
        heads = match.only_consumer(heads.outputs[0], "Transpose")
    return heads is not None


def merge_groups(
    graph: TypedGraph,
    groups: Iterable[Sequence[Projection]],
    nodes: Callable[[Projection], Sequence[Node]],
    merged: Callable[[Sequence[Projection]], list[Node]],
    limit: int,
) -> bool:
    """Put what `merged` gives of each group of several in the place of its first node; True where there was one.

    Args:
        nodes: those that a projection consists of, the product first.
        limit: bytes that the weights of a product may take.
    """
    instead: dict[Node, list[Node]] = {}
    for projections in groups:
        weights = sum(graph.tensor(nodes(p)[0].inputs[1]).nbytes for p in projections)
        if len(projections) > 1 and weights <= limit:
            instead |= {n: [] for p in projections for n in nodes(p)}
            instead[nodes(projections[0])[0]] = merged(projections)
    return graph.substitute(instead)


def apart(graph: TypedGraph, wide: str, widths: Sequence[int], results: Sequence[str], name: str) -> Node:
    """The Split of `wide` along its last dimension."""
    sizes = graph.add_constant(np.array(widths, np.int64), DType.INT64, f"{wide}.sizes")
    split = newest("Split", axis=graph.tensor(wide).rank - 1, present=(True,) * len(results))
    return Node(split, (wide, sizes), tuple(results), name)

"""Helpers of passes that merge query, key and value projections, i.e. products of one input by several constants."""

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
    """Whether Reshape and Transpose follow `result`, optionally with a scale before or a norm between them."""
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
    """Replace each group of two or more projections by the nodes `merged` returns; returns whether there were any.

    Args:
        nodes: returns the nodes of a projection, the product first.
        limit: maximum bytes of a product's weights.
    """
    instead: dict[Node, list[Node]] = {}
    for projections in groups:
        weights = sum(graph.tensor(nodes(p)[0].inputs[1]).nbytes for p in projections)
        if len(projections) > 1 and weights <= limit:
            instead |= {n: [] for p in projections for n in nodes(p)}
            instead[nodes(projections[0])[0]] = merged(projections)
    return graph.substitute(instead)


def apart(graph: TypedGraph, wide: str, widths: Sequence[int], results: Sequence[str], name: str) -> Node:
    """Return the Split of `wide` along its last dimension."""
    sizes = graph.add_constant(np.array(widths, np.int64), DType.INT64, f"{wide}.sizes")
    split = newest("Split", axis=graph.tensor(wide).rank - 1, present=(True,) * len(results))
    return Node(split, (wide, sizes), tuple(results), name)

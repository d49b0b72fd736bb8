"""Bounds of what a run brings: the integers that a graph's kernels clamp, as far back as the host knows them."""

from __future__ import annotations

from pyruntime.errors import RuntimeException
from pyruntime.ir import Bound, InputBound, Node, TensorType, TypedGraph
from pyruntime.ops.base import Op
from pyruntime.ops.interpreter import where

__all__ = ["bounds_of"]

_MOVES = ("Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze")
"""Operators that leave integers as they are."""


def bounds_of(typed: TypedGraph) -> list[InputBound]:
    """The bounds of a graph's inputs on the host, each once for all nodes that have it, and of constants outside."""
    needed, found = set(typed.outputs), dict[tuple[str, ...], InputBound]()
    for node in reversed(typed.nodes):
        if needed.isdisjoint(node.outputs):
            continue
        needed.update(node.inputs)
        if isinstance(node.op, Op):
            for bound in node.op.bounds(*(typed.types[n] if n else None for n in node.inputs)):
                made = _of_input(typed, node, bound)
                if made is not None:
                    found[made.input, repr(made.least), repr(made.most), repr(made.every), *made.texts[1:]] = made
    return list(found.values())


def _of_input(typed: TypedGraph, node: Node, bound: Bound) -> InputBound | None:
    """The bound of the graph's input that has these integers; None where there is none, or where constants are within.

    The sizes with which these are, or are not, guard the plan.
    """
    name, place = node.inputs[bound.input], f"{where(node)}: "
    if name in typed.static:
        try:
            bound.check(typed.tensor(name).value())
        except RuntimeException as error:
            return InputBound("", 0, 0, (f"{place}{error}", "", ""))
        return None
    while _is_integer(typed, name) and (moved := typed.producer(name)) is not None and moved.op.op_type in _MOVES:
        name = moved.inputs[0]
    if name not in typed.inputs or name in typed.resident or not _is_integer(typed, name):
        return None
    before, between, after = bound.texts
    return InputBound(name, bound.least, bound.most, (f"{place}{before}", between, after), bound.every)


def _is_integer(typed: TypedGraph, name: str) -> bool:
    kind = typed.types[name]
    return isinstance(kind, TensorType) and kind.dtype.is_integer and kind.dtype.bits >= 8

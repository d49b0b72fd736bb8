"""Pattern matching on graphs: producers, consumers and constants of values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from typing import TypeAlias

import numpy as np

from pyruntime.ir import Node, TensorType, TypedGraph

__all__ = ["Matcher", "Pattern", "either", "made_by"]

Bound: TypeAlias = Mapping[str, str]
"""Name in a pattern -> the value it matched."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """Pattern of a value: one of `choices`, each an operator type and patterns of its first operands.

    An operand is a pattern, the value of a scalar constant, or a name; equal names match equal values. The operands of
    Add and Mul match in any order. `name`, unless empty, is bound to the value itself.
    """

    choices: tuple[tuple[str, tuple[Pattern | float | str, ...]], ...]
    name: str = ""


def made_by(op_type: str, *operands: Pattern | float | str, name: str = "") -> Pattern:
    """Return the pattern of the result of an ai.onnx operator, given patterns of its first operands."""
    return Pattern(((op_type, operands),), name)


def either(*patterns: Pattern) -> Pattern:
    """Return a pattern that matches any of several unnamed patterns."""
    return Pattern(tuple(choice for pattern in patterns for choice in pattern.choices))


class Matcher:
    """Queries of a graph."""

    def __init__(self, graph: TypedGraph) -> None:
        self.graph = graph

    @cached_property
    def wanted(self) -> set[str]:
        """Names of the graph's outputs."""
        return set(self.graph.outputs)

    def bind(self, value: str, pattern: Pattern | float | str, bound: Bound | None = None) -> Iterator[Bound]:
        """Match the producers of `value` against `pattern`; yields the bindings of each match, which extend `bound`."""
        bound = bound or {}
        if isinstance(pattern, str):
            if bound.get(pattern, value) == value:
                yield {**bound, pattern: value}
        elif not isinstance(pattern, Pattern):
            if self.scalar(value) == pattern:
                yield bound
        elif (node := self.producer(value, *(op_type for op_type, _ in pattern.choices))) is not None:
            if pattern.name:
                if bound.get(pattern.name, value) != value:
                    return
                bound = {**bound, pattern.name: value}
            for op_type, operands in pattern.choices:
                if op_type == node.op.op_type and len(operands) <= len(node.inputs):
                    for order in permutations(operands) if op_type in ("Add", "Mul") else (operands,):
                        yield from self._bind_all(node.inputs, order, bound)

    def _bind_all(
        self, values: tuple[str, ...], patterns: tuple[Pattern | float | str, ...], bound: Bound
    ) -> Iterator[Bound]:
        """Yield the bindings under which each value matches the pattern at its index; further values are ignored."""
        if not patterns:
            yield bound
            return
        for now in self.bind(values[0], patterns[0], bound):
            yield from self._bind_all(values[1:], patterns[1:], now)

    def producer(self, name: str, *op_types: str) -> Node | None:
        """Return the producer of `name` if it is an ai.onnx node of one of these types."""
        node = self.graph.producer(name)
        return node if node is not None and node.op.domain == "" and node.op.op_type in op_types else None

    def only_consumer(self, name: str, *op_types: str) -> Node | None:
        """Return the only consumer of `name` if it has one of these types and `name` is no graph output."""
        if not self.read_once(name):
            return None
        (node,) = self.graph.consumers(name)
        return node if node.op.domain == "" and node.op.op_type in op_types else None

    def read_once(self, name: str) -> bool:
        """Whether exactly one node reads `name`, which is no graph output."""
        return self.graph.reads(name) == 1 and name not in self.wanted

    def scalar(self, name: str) -> float | None:
        """Return the value of a static one-element float tensor; None for others."""
        kind = self.graph.types.get(name)
        if not isinstance(kind, TensorType) or name not in self.graph.static or kind.size != 1:
            return None
        return float(np.asarray(kind.value(), dtype=np.float64).reshape(-1)[0]) if kind.dtype.is_float else None

    def other(self, node: Node, name: str) -> str:
        """Return the operand of a binary node that is not `name`."""
        return node.inputs[1] if node.inputs[0] == name else node.inputs[0]

    def with_scalar(self, node: Node) -> tuple[str, float] | None:
        """Return (other operand, value) of a commutative binary node with a scalar constant, or None."""
        for i in (0, 1):
            number = self.scalar(node.inputs[i])
            if number is not None:
                return node.inputs[1 - i], number
        return None

"""What pattern passes ask of a graph: who makes a value, whether anybody else reads it, what scalar it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from pyruntime.ir import Node, TensorType, TypedGraph

__all__ = ["Matcher"]


class Matcher:
    """Indexes over a graph that stays unchanged while it is in use; made when they are first asked for."""

    def __init__(self, graph: TypedGraph) -> None:
        self.graph = graph

    @cached_property
    def makers(self) -> Mapping[str, Node]:
        """The node that makes each value."""
        return self.graph.producers()

    @cached_property
    def readers(self) -> Mapping[str, Sequence[Node]]:
        """The nodes that read each value, each once."""
        return self.graph.consumers()

    @cached_property
    def wanted(self) -> set[str]:
        """The graph's outputs."""
        return set(self.graph.outputs)

    def maker(self, name: str, *op_types: str) -> Node | None:
        """The ai.onnx node of one of these types that makes `name`."""
        node = self.makers.get(name)
        return node if node is not None and node.op.domain == "" and node.op.op_type in op_types else None

    def only_reader(self, name: str, *op_types: str) -> Node | None:
        """The one node that reads `name`, if it is of one of these types and `name` is no graph output."""
        readers = self.readers.get(name, [])
        if len(readers) != 1 or name in self.wanted:
            return None
        node = readers[0]
        return node if node.op.domain == "" and node.op.op_type in op_types else None

    def read_once(self, name: str) -> bool:
        """True where one node reads `name` and nobody else wants it."""
        return len(self.readers.get(name, [])) == 1 and name not in self.wanted

    def scalar(self, name: str) -> float | None:
        """The number of a static one-element tensor; None for anything else."""
        kind = self.graph.types.get(name)
        if not isinstance(kind, TensorType) or name not in self.graph.static or kind.size != 1:
            return None
        return float(np.asarray(kind.value(), dtype=np.float64).reshape(-1)[0]) if kind.dtype.is_float else None

    def other(self, node: Node, name: str) -> str:
        """The operand of a binary node that is not `name`."""
        return node.inputs[1] if node.inputs[0] == name else node.inputs[0]

    def with_scalar(self, node: Node) -> tuple[str, float] | None:
        """(other operand, number) of a commutative binary node with a scalar constant."""
        for i in (0, 1):
            number = self.scalar(node.inputs[i])
            if number is not None:
                return node.inputs[1 - i], number
        return None

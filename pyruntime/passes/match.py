"""What passes that look for patterns ask of a graph: which operators are around a value, and which number it is."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from pyruntime.ir import Node, TensorType, TypedGraph

__all__ = ["Matcher"]


class Matcher:
    """Questions about a graph."""

    def __init__(self, graph: TypedGraph) -> None:
        self.graph = graph

    @cached_property
    def wanted(self) -> set[str]:
        """The graph's outputs."""
        return set(self.graph.outputs)

    def producer(self, name: str, *op_types: str) -> Node | None:
        """The ai.onnx node of one of these types that makes `name`."""
        node = self.graph.producer(name)
        return node if node is not None and node.op.domain == "" and node.op.op_type in op_types else None

    def producers(self, name: str, *op_types: str) -> tuple[Node, ...]:
        """The nodes of these types on the way up from `name` by first inputs, the nearest first; () if one differs."""
        found: list[Node] = []
        for op_type in op_types:
            node = self.producer(name, op_type)
            if node is None:
                return ()
            found.append(node)
            name = node.inputs[0]
        return tuple(found)

    def only_consumer(self, name: str, *op_types: str) -> Node | None:
        """The one node that reads `name`, if it is of one of these types and `name` is no graph output."""
        if not self.read_once(name):
            return None
        (node,) = self.graph.consumers(name)
        return node if node.op.domain == "" and node.op.op_type in op_types else None

    def only_consumers(self, name: str, *op_types: str) -> tuple[Node, ...]:
        """The nodes of these types on the way down from `name`, each the only consumer; () if one differs."""
        found: list[Node] = []
        for op_type in op_types:
            node = self.only_consumer(name, op_type)
            if node is None:
                return ()
            found.append(node)
            name = node.outputs[0]
        return tuple(found)

    def read_once(self, name: str) -> bool:
        """True where one node reads `name`, which is no graph output."""
        return self.graph.reads(name) == 1 and name not in self.wanted

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

"""The graph of a model: nodes in topological order, connected by named values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from pyruntime.ir.constant import Constant
from pyruntime.ir.dtype import DType

__all__ = ["DeclaredDim", "DeclaredTensor", "DeclaredType", "Graph", "HostKind", "Node", "Operator", "ValueInfo"]

DeclaredDim = int | str | None


class Operator(Protocol):
    """The properties of an operator that a graph needs. Operators themselves are in `pyruntime.ops`."""

    @property
    def op_type(self) -> str:
        """Operator type in ONNX."""
        ...

    @property
    def domain(self) -> str:
        """Operator set; empty for ai.onnx."""
        ...

    @property
    def title(self) -> str:
        """Name in reports."""
        ...


@dataclass(frozen=True, slots=True)
class DeclaredTensor:
    """A tensor type as a model declares it. A dimension is a number, a symbol, or None if unknown; shape None: any
    rank.
    """

    dtype: DType
    shape: tuple[DeclaredDim, ...] | None = None

    def __str__(self) -> str:
        return self.dtype.type_string


@dataclass(frozen=True, slots=True)
class HostKind:
    """A declared sequence, optional, map or sparse tensor; `kind` is 'seq', 'optional', 'map' or 'sparse_tensor'."""

    kind: str
    element: DeclaredTensor | HostKind | None = None
    key: DType | None = None

    def __str__(self) -> str:
        if self.kind == "map":
            key = self.key.onnx_name if self.key else "?"
            return f"map({key},{self.element})"
        return f"{self.kind}({self.element})"


DeclaredType = DeclaredTensor | HostKind


@dataclass(frozen=True, slots=True)
class ValueInfo:
    """Name and declared type of a graph input, an output or an intermediate value; the latter's type may be missing."""

    name: str
    type: DeclaredType | None = None


@dataclass(eq=False, slots=True)
class Node:
    """An operator applied to named values. An empty name is an omitted optional input or output.

    For operators with subgraphs, outer values that the bodies read are additional inputs at the end.
    """

    op: Operator
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    name: str = ""

    @property
    def label(self) -> str:
        """The node in error messages: `'name' (Op)`; a node without a name is called by its first output."""
        return f"'{self.name or next(filter(None, self.outputs), '?')}' ({self.op.op_type})"

    def __repr__(self) -> str:
        return f"{', '.join(self.outputs)} = {self.op.op_type}({', '.join(self.inputs)})"


@dataclass(eq=False, slots=True)
class Graph:
    """A model's graph, or the body of a control-flow operator.

    Attributes:
        inputs: required inputs in order; inputs with a default value (an initializer) are in `overridable`.
        constants: initializers by name.
        nodes: in topological order.
        captures: outer values that a body reads; empty for the main graph.
    """

    name: str = ""
    inputs: list[ValueInfo] = field(default_factory=list)
    outputs: list[ValueInfo] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, Constant] = field(default_factory=dict)
    overridable: list[ValueInfo] = field(default_factory=list)
    captures: tuple[str, ...] = ()

    def producers(self) -> dict[str, Node]:
        """Return the producer of each value, by name."""
        return {name: node for node in self.nodes for name in node.outputs if name}

    def consumers(self) -> dict[str, list[Node]]:
        """Return the consumers of each value, by name; a node occurs once for each input that reads the value."""
        readers: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in node.inputs:
                if name:
                    readers.setdefault(name, []).append(node)
        return readers

    def renamed(self, names: Mapping[str, str], prefix: str) -> Graph:
        """Copy the graph for inlining: values are renamed by `names`, all others get `prefix`."""

        def to(name: str) -> str:
            return names.get(name, prefix + name) if name else ""

        nodes = [
            replace(n, inputs=tuple(map(to, n.inputs)), outputs=tuple(map(to, n.outputs)), name=prefix + n.name)
            for n in self.nodes
        ]
        return Graph(
            self.name,
            [replace(v, name=to(v.name)) for v in self.inputs],
            [replace(v, name=to(v.name)) for v in self.outputs],
            nodes,
            {to(k): v for k, v in self.constants.items()},
        )

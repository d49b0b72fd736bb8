"""The graph: nodes in topological order over named values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from pyruntime.ir.constant import Constant
from pyruntime.ir.dtype import DType

__all__ = ["DeclaredDim", "DeclaredTensor", "DeclaredType", "Graph", "HostKind", "Node", "Operator", "ValueInfo"]

DeclaredDim = int | str | None


class Operator(Protocol):
    """What the graph needs of an operator: its names. The operators themselves live in `pyruntime.ops`."""

    @property
    def op_type(self) -> str:
        """The ONNX name."""
        ...

    @property
    def domain(self) -> str:
        """The operator set; empty for ai.onnx."""
        ...

    @property
    def title(self) -> str:
        """What reports call it."""
        ...


@dataclass(frozen=True, slots=True)
class DeclaredTensor:
    """A tensor type as a model declares it: a dimension is a number, a symbol or unknown; no shape: any rank."""

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
    """Name and declared type of a graph input, output or inner value; the type may be missing inside."""

    name: str
    type: DeclaredType | None = None


@dataclass(eq=False, slots=True)
class Node:
    """One operator applied to named values. An empty name is an absent optional input or output.

    Operators with subgraphs take the outer values their bodies use as trailing inputs.
    """

    op: Operator
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    name: str = ""

    @property
    def label(self) -> str:
        """How error messages name this node: `'name' (Op)`, or the first output where it has no name."""
        return f"'{self.name or next(filter(None, self.outputs), '?')}' ({self.op.op_type})"

    def __repr__(self) -> str:
        return f"{', '.join(self.outputs)} = {self.op.op_type}({', '.join(self.inputs)})"


@dataclass(eq=False, slots=True)
class Graph:
    """A model's graph, or the body of a control-flow operator.

    Attributes:
        inputs: required inputs in order; initializers that are also inputs are in `overridable`.
        constants: initializers by name.
        nodes: topologically ordered.
        captures: outer values a body uses; empty for the main graph.
    """

    name: str = ""
    inputs: list[ValueInfo] = field(default_factory=list)
    outputs: list[ValueInfo] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, Constant] = field(default_factory=dict)
    overridable: list[ValueInfo] = field(default_factory=list)
    captures: tuple[str, ...] = ()

    def producers(self) -> dict[str, Node]:
        """The node that makes each value."""
        return {name: node for node in self.nodes for name in node.outputs if name}

    def consumers(self) -> dict[str, list[Node]]:
        """The nodes that read each value, each once per reading input."""
        readers: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in node.inputs:
                if name:
                    readers.setdefault(name, []).append(node)
        return readers

    def renamed(self, names: Mapping[str, str], prefix: str) -> Graph:
        """A copy with values renamed by `names`, every other value under `prefix`: how a body is inlined."""

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

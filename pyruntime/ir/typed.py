"""A graph whose every value has a type: what passes rewrite and plans are made from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import Any

from pyruntime.ir.constant import Constant
from pyruntime.ir.dtype import DType
from pyruntime.ir.graph import Node
from pyruntime.ir.symbolic.sizes import Sizes
from pyruntime.ir.types import Array, TensorType, ValueType

__all__ = ["Rows", "State", "TypedGraph"]


@dataclass(frozen=True, slots=True)
class Rows:
    """A number of rows that a run brings: `offset`, plus the elements of a fed integer tensor where there is one.

    Attributes:
        input: its name, or empty.
        offset: an int or a Dim.
    """

    input: str = ""
    offset: Any = 0


@dataclass(frozen=True, slots=True)
class State:
    """An output that is left in the memory of an input: the input itself, that with rows behind it or others over it.

    Attributes:
        output: the name the model has for it, whose type has the rows that count.
        input: the resident input whose memory it is.
        axis: along which there is room for more rows; -1: the memory is the tensor.
        room: rows there are in memory.
        given: the type of the input with the rows that count.
        first, end: rows along `axis` from `first` on are written over, and those before `end` count then.
    """

    output: str
    input: str
    axis: int = -1
    room: Any = 0
    given: TensorType | None = None
    first: Rows | None = None
    end: Rows | None = None


@dataclass(eq=False, slots=True)
class TypedGraph:
    """Nodes in topological order, the type of every value, and which values are known.

    Attributes:
        inputs: values that are there before the first node: fed, or carried from an earlier stage.
        outputs: values wanted after the last node.
        constants: values that are constants as they stand.
        static: values that follow from constants and shapes alone (constants among them); `static_value` computes
            one when somebody asks.
        resident: inputs that are on the GPU already.
        computed: resident inputs that are constants, computed before: no dispatch writes their memory.
        states: outputs that stay in the memory of a resident input, and how.
        sizes: what the dimensions that are no ints are made of; None where all are ints.
    """

    nodes: list[Node]
    types: dict[str, ValueType]
    inputs: list[str]
    outputs: list[str]
    constants: dict[str, Constant]
    static: set[str]
    resident: frozenset[str] = frozenset()
    sizes: Sizes | None = None
    states: dict[str, State] = field(default_factory=dict)
    computed: frozenset[str] = frozenset()
    _fresh: int = field(default=0)
    _producers: tuple[list[Node], Mapping[str, Node]] = field(default=([], {}), repr=False)
    _consumers: tuple[list[Node], Mapping[str, Sequence[Node]]] = field(default=([], {}), repr=False)

    def tensor(self, name: str) -> TensorType:
        """The type of a tensor value. Raises TypeError where `name` is a sequence, optional or map."""
        kind = self.types[name]
        if not isinstance(kind, TensorType):
            raise TypeError(f"'{name}' is {kind}, not a tensor")
        return kind

    def static_value(self, name: str) -> Array | None:
        """The value of a static tensor in its carrier, None where `name` is not static."""
        return self.tensor(name).value() if name in self.static else None

    def producers(self) -> Mapping[str, Node]:
        """The node that makes each value."""
        if not self._has(self._producers[0]):
            self._producers = list(self.nodes), {name: node for node in self.nodes for name in node.outputs if name}
        return self._producers[1]

    def consumers(self) -> Mapping[str, Sequence[Node]]:
        """The nodes that read each value, each once."""
        if self._has(self._consumers[0]):
            return self._consumers[1]
        readers: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in node.inputs:
                found = readers.get(name)
                if found is None:
                    readers[name] = [node]
                elif found[-1] is not node:
                    found.append(node)
        readers.pop("", None)
        self._consumers = list(self.nodes), readers
        return readers

    def _has(self, nodes: Sequence[Node]) -> bool:
        """Whether the graph's nodes are these: what was found about them holds."""
        return len(nodes) == len(self.nodes) and all(map(is_, nodes, self.nodes))

    def fresh(self, hint: str) -> str:
        """A value name not in use."""
        while True:
            self._fresh += 1
            name = f"{hint}#{self._fresh}"
            if name not in self.types:
                return name

    def add_value(self, hint: str, kind: TensorType, value: Callable[[], Array] | None = None) -> str:
        """A new value of the type of `kind`, static where `value` gives it; returns its name."""
        name = self.fresh(hint)
        self.types[name] = TensorType(kind.dtype, kind.shape, value, name)
        if value is not None:
            self.static.add(name)
        return name

    def add_constant(self, array: Array, dtype: DType, hint: str) -> str:
        """A new constant value, or, where it has Dims, one that follows from sizes; returns its name."""
        if array.dtype == object:
            return self.add_value(hint, TensorType(dtype, array.shape), lambda: array)
        name = self.fresh(hint)
        constant = Constant.from_array(array, dtype)
        self.constants[name] = constant
        self.types[name] = TensorType(dtype, constant.type.shape, constant.numpy, name)
        self.static.add(name)
        return name

    def remove(self, nodes: Iterable[Node]) -> None:
        """Drop nodes; the caller has made sure nobody reads their outputs."""
        gone = {id(n) for n in nodes}
        self.nodes = [n for n in self.nodes if id(n) not in gone]

    def rewrite(self, instead: Callable[[Node], list[Node] | None]) -> bool:
        """Put the nodes that `instead` gives in the place of each node, None: it stays; True where any was given."""
        made: list[Node] = []
        changed = False
        for node in self.nodes:
            nodes = instead(node)
            changed = changed or nodes is not None
            made += [node] if nodes is None else nodes
        self.nodes = made
        return changed

    def verify(self) -> None:
        """Check the invariants passes must keep.

        Raises:
            AssertionError: a value read before it is made, made twice, or without type.
        """
        have = {*self.inputs, *self.constants, *self.static}
        made: set[str] = set()
        for node in self.nodes:
            for name in node.inputs:
                assert not name or name in have, f"{node} reads '{name}' before it is made"
            for name in node.outputs:
                if name:
                    assert name not in made, f"'{name}' is made twice"
                    assert name in self.types, f"'{name}' has no type"
                    made.add(name)
                    have.add(name)
        for name in self.outputs:
            assert name in have, f"output '{name}' is never made"

"""A graph in which every value has a type. Passes rewrite it, and plans are made from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pyruntime.ir.bounds import InputBound
from pyruntime.ir.constant import Constant
from pyruntime.ir.dtype import DType
from pyruntime.ir.graph import Node, Operator
from pyruntime.ir.symbolic.sizes import Sizes
from pyruntime.ir.types import Array, TensorType, ValueType

__all__ = ["Edit", "Rows", "State", "TypedGraph"]

Edit: TypeAlias = Sequence[Node] | Mapping[Node, Sequence[Node]]
"""The replacement of a node, or of several nodes."""


@dataclass(frozen=True, slots=True)
class Rows:
    """A number of rows that depends on a run: `offset`, plus the elements of an integer input if one is named.

    Attributes:
        input: name of the input, or empty.
        offset: an int or a Dim.
    """

    input: str = ""
    offset: Any = 0


@dataclass(frozen=True, slots=True)
class State:
    """An output in the memory of an input: the input itself, with rows appended, or with rows overwritten.

    Attributes:
        output: name of the output in the model; its type has the valid rows.
        input: the resident input whose memory is used.
        axis: axis along which the memory may have more rows; -1: none, the memory is the tensor.
        capacity: rows that the memory can hold.
        given: type of the input with the valid rows.
        first, end: rows from `first` on along `axis` are overwritten; afterwards, rows before `end` are valid.
    """

    output: str
    input: str
    axis: int = -1
    capacity: Any = 0
    given: TensorType | None = None
    first: Rows | None = None
    end: Rows | None = None


@dataclass(eq=False, slots=True)
class TypedGraph:
    """Nodes in topological order, the type of every value, and the known values.

    Nodes are changed only by the methods of the graph, which maintain their order and each value's producer and
    consumers.

    Attributes:
        inputs: values that exist before the first node: fed by the caller, or left by an earlier stage.
        outputs: values wanted after the last node.
        constants: stored constants, by name.
        static: values that depend only on constants and shapes (constants included); see `static_value`.
        resident: inputs that are on the GPU already.
        computed: resident inputs that are precomputed constants: no dispatch may write their memory.
        free: outputs on the GPU that may be placed in any memory there, an input's included.
        states: outputs in the memory of a resident input.
        bounds: ranges of the integers in host inputs.
        sizes: the dynamic sizes of the shapes; None where all dimensions are ints.
        float32_values: for each node that must compute in float32, the values computed from there on.
        precision: by name of nodes with float32 results: why these stay float32; empty where they become float16.
    """

    _nodes: list[Node]
    types: dict[str, ValueType]
    inputs: list[str]
    outputs: list[str]
    constants: dict[str, Constant]
    static: set[str]
    resident: frozenset[str] = frozenset()
    sizes: Sizes | None = None
    states: dict[str, State] = field(default_factory=dict)
    computed: frozenset[str] = frozenset()
    free: tuple[str, ...] = ()
    bounds: list[InputBound] = field(default_factory=list)
    float32_values: list[list[str]] = field(default_factory=list)
    precision: dict[str, str] = field(default_factory=dict)
    _fresh: int = 0
    _producers: dict[str, Node] | None = field(default=None, repr=False)
    _consumers: dict[str, dict[Node, None]] = field(default_factory=dict, repr=False)
    _positions: dict[Node, int] | None = field(default=None, repr=False)
    _edits: dict[Node, Sequence[Node]] = field(default_factory=dict, repr=False)

    @property
    def nodes(self) -> Sequence[Node]:
        """The nodes in topological order; the list itself does not change with the graph."""
        if self._edits:
            edits, self._edits, self._positions = self._edits, {}, None
            self._nodes = list(_placed(self._nodes, edits))
        return self._nodes

    def tensor(self, name: str) -> TensorType:
        """Return the type of a tensor. Raises TypeError where `name` is a sequence, optional or map."""
        kind = self.types[name]
        if not isinstance(kind, TensorType):
            raise TypeError(f"'{name}' is {kind}, not a tensor")
        return kind

    def static_value(self, name: str) -> Array | None:
        """Return the value of a static tensor in its carrier; None where `name` is not static."""
        return self.tensor(name).value() if name in self.static else None

    def is_given(self, name: str) -> bool:
        """Return whether a value exists before the first node."""
        return name in self.static or name in self.inputs

    def producer(self, name: str) -> Node | None:
        """Return the producer of a value; None for inputs, constants and unknown values."""
        return (self._linked() if self._producers is None else self._producers).get(name)

    def consumers(self, name: str) -> Sequence[Node]:
        """Return the consumers of a value, each once, in topological order."""
        if self._producers is None:
            self._linked()
        found = self._consumers.get(name, ())
        return tuple(found) if len(found) < 2 else sorted(found, key=self.position)

    def reads(self, name: str) -> int:
        """Return the number of consumers of a value."""
        if self._producers is None:
            self._linked()
        return len(self._consumers.get(name, ()))

    def position(self, node: Node) -> int:
        """Return the index of a node in topological order."""
        nodes = self.nodes
        if self._positions is None:
            self._positions = {n: i for i, n in enumerate(nodes)}
        return self._positions[node]

    def _linked(self) -> dict[str, Node]:
        """Build the maps of producers and consumers; return the producers."""
        self._producers = {}
        for node in self.nodes:
            self._attach(node)
        return self._producers

    def _attach(self, node: Node) -> None:
        assert self._producers is not None
        for name in node.inputs:
            if name:
                found = self._consumers.get(name)
                if found is None:
                    self._consumers[name] = {node: None}
                else:
                    found[node] = None
        for name in node.outputs:
            if name:
                self._producers[name] = node

    def _detach(self, node: Node) -> None:
        assert self._producers is not None
        for name in node.inputs:
            if name:
                self._consumers[name].pop(node, None)
        for name in node.outputs:
            if self._producers.get(name) is node:
                del self._producers[name]

    def update(
        self,
        node: Node,
        op: Operator | None = None,
        inputs: Sequence[str] | None = None,
        outputs: Sequence[str] | None = None,
    ) -> None:
        """Change a node in place; None leaves a field unchanged."""
        if self._producers is not None:
            self._detach(node)
        node.op = node.op if op is None else op
        node.inputs = node.inputs if inputs is None else tuple(inputs)
        node.outputs = node.outputs if outputs is None else tuple(outputs)
        if self._producers is not None:
            self._attach(node)

    def replace_all_uses(self, old: str, new: str) -> None:
        """Let all consumers of `old` read `new`. Names of graph outputs do not change."""
        for node in self.consumers(old):
            self.update(node, inputs=[new if n == old else n for n in node.inputs])

    def substitute(self, instead: Mapping[Node, Sequence[Node]]) -> bool:
        """Replace nodes by others, all at once; return whether there were any.

        Args:
            instead: replacements of each node, which may include the node; () removes it. Outputs of a removed node
                need another producer, or no consumer.
        """
        for node, news in instead.items():
            placed = self._edits.get(node)
            self._edits[node] = news if placed is None else [m for n in placed for m in (news if n is node else (n,))]
        if self._producers is not None:
            for node in instead:
                self._detach(node)
            for news in instead.values():
                for new in news:
                    self._attach(new)
        return bool(instead)

    def rewrite(self, instead: Callable[[Node], Edit | None]) -> bool:
        """Replace nodes by what `instead` returns for each node of the unchanged graph; None leaves the node.

        Returns:
            True if any node was replaced.
        """
        edits: dict[Node, Sequence[Node]] = {}
        for node in self.nodes:
            made = instead(node)
            if made is not None:
                edits.update(made if isinstance(made, Mapping) else {node: made})
        return self.substitute(edits)

    def insert_before(self, node: Node, *new: Node) -> None:
        """Insert nodes directly before another."""
        self.substitute({node: (*new, node)})

    def insert_after(self, node: Node, *new: Node) -> None:
        """Insert nodes directly after another."""
        self.substitute({node: (node, *new)})

    def remove(self, nodes: Iterable[Node]) -> bool:
        """Remove nodes whose outputs have no other consumers; return whether there were any."""
        return self.substitute(dict.fromkeys(nodes, ()))

    def sort(self) -> None:
        """Restore topological order; nodes that are in order keep their sequence."""
        done: set[Node] = set()
        made: list[Node] = []
        for node in self.nodes:
            stack = [node]
            while stack:
                top = stack[-1]
                if top in done:
                    stack.pop()
                    continue
                missing = [m for n in top.inputs if (m := self.producer(n)) is not None and m not in done]
                if missing:
                    stack += missing
                    continue
                done.add(top)
                made.append(stack.pop())
        self._nodes, self._positions = made, None

    def fresh(self, hint: str) -> str:
        """Return an unused value name that starts with `hint`."""
        while True:
            self._fresh += 1
            name = f"{hint}#{self._fresh}"
            if name not in self.types:
                return name

    def add_value(self, hint: str, kind: TensorType, value: Callable[[], Array] | None = None) -> str:
        """Add a value with the element type and shape of `kind`, static if `value` computes it; return its name."""
        name = self.fresh(hint)
        self.types[name] = TensorType(kind.dtype, kind.shape, value, name)
        if value is not None:
            self.static.add(name)
        return name

    def add_constant(self, array: Array, dtype: DType, hint: str) -> str:
        """Add a constant, or a static value if the array contains Dims; return its name."""
        if array.dtype == object:
            return self.add_value(hint, TensorType(dtype, array.shape), lambda: array)
        return self.add_stored(Constant.from_array(array, dtype), hint)

    def add_stored(self, constant: Constant, hint: str) -> str:
        """Add a stored constant; return the value's name."""
        name = self.fresh(hint)
        self.constants[name] = constant
        self.types[name] = TensorType(constant.type.dtype, constant.type.shape, constant.numpy, name)
        self.static.add(name)
        return name

    def verify(self) -> None:
        """Check the invariants of the graph.

        Raises:
            AssertionError: a value that is read before it is produced, produced twice or without a type; or a producer
                or consumer map that does not match the nodes.
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
        if self._producers is not None:
            known, readers = self._producers, {name: set(found) for name, found in self._consumers.items() if found}
            self._consumers = {}
            assert known == self._linked(), "the producers are not those of the nodes"
            now = {name: set(found) for name, found in self._consumers.items()}
            assert readers == now, "the consumers are not those of the nodes"


def _placed(nodes: Iterable[Node], edits: Mapping[Node, Sequence[Node]]) -> Iterator[Node]:
    """Yield `nodes`, with the replacements of `edits` in place of edited ones."""
    for node in nodes:
        news = edits.get(node)
        if news is None:
            yield node
            continue
        for new in news:
            yield from (node,) if new is node else _placed((new,), edits)

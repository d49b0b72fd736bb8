"""Type inference along the graph, with values folded where they are known.

A value is *static* where it follows from constants and shapes; *fed* where it came with this run (small graph inputs,
values read back at the end of an earlier stage). Operators read values through `TensorType.value()`. Reading a fed
value is recorded as a guard: the plan holds for other runs only while that value is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np

from pyruntime.compiler.filled import coordinates
from pyruntime.compiler.loops import repeated
from pyruntime.errors import InvalidArgument, InvalidGraph, OrtError
from pyruntime.ir import (
    NUMBERS_ALONE,
    Constant,
    Graph,
    Node,
    Sizes,
    TensorType,
    TypedGraph,
    ValueNeeded,
    ValueType,
    has_dims,
    is_dim,
    known,
    upper,
)
from pyruntime.ops.base import LATEST, UNFIT, Op
from pyruntime.ops.decomposed import Decomposed, SometimesDecomposed
from pyruntime.ops.defects import strict
from pyruntime.ops.interpreter import execute, located
from pyruntime.ops.registry import op_class

__all__ = ["Boundary", "Guards", "Typing", "infer_node", "type_graph"]

FED_LIMIT = 1024
"""Fed values of more elements are not folded through operators: only an operator that asks for them gets them."""


class Knowledge(Enum):
    """What planning knows of a node's results.

    STATIC: they follow from constants and shapes. FED: they follow from values that came with this run, too, on which
    the plan then depends. RUN: they are known when the plan has run.
    """

    STATIC = "static"
    FED = "fed"
    RUN = "run"


class Guards:
    """Fed values and which of them planning has looked at."""

    def __init__(self, fed: Mapping[str, Callable[[], Any]]) -> None:
        self._fed = fed
        self.read: dict[str, Any] = {}

    def source(self, name: str) -> Callable[[], Any]:
        """A value source that records that `name` was read."""

        def read() -> Any:
            if name not in self.read:
                self.read[name] = self._fed[name]()
            return self.read[name]

        return read

    def hold(self, values: Mapping[str, Callable[[], Any]]) -> bool:
        """True where every value planning looked at is the same in `values`."""
        return all(_same(value, values[name]()) for name, value in self.read.items())


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return (
            a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
            if a.dtype != object
            else bool(np.array_equal(a, b))
        )
    return a is b


@dataclass(frozen=True, slots=True)
class Boundary:
    """Where a stage ends: `needed` must be on the host before planning can go on.

    `node`, where given, is the data-dependent node that then runs on the host; its outputs begin the next stage.
    """

    needed: tuple[str, ...]
    node: Node | None = None


def infer_node(node: Node, inputs: Sequence[ValueType | None]) -> tuple[ValueType, ...]:
    """Output types of one node; errors name it.

    Raises:
        ValueNeeded: a value the operator asks for is not known.
        InvalidGraph: the inputs do not fit, or a required one is absent.
    """
    op = node.op
    assert isinstance(op, Op)
    with located(node, inputs):
        try:
            return op.infer(*inputs)
        except OrtError:
            raise
        except UNFIT as error:
            raise InvalidGraph(
                f"inputs ({', '.join(str(t) if t else 'absent' for t in inputs)}) do not fit "
                f"{op.domain or 'ai.onnx'}.{op.op_type}: {type(error).__name__}: {error}"
            ) from error


class Typing:
    """Infers the remaining nodes one after another, up to the end or to a boundary.

    Args:
        decompose: write loops as repeated nodes, and operators that expand to others as these.
    """

    def __init__(
        self,
        types: dict[str, ValueType],
        static: set[str],
        guards: Guards,
        sizes: Sizes | None = None,
        decompose: bool = True,
    ) -> None:
        self.types = types
        self.sizes = sizes
        self.static = static
        self.guards = guards
        self.done: list[Node] = []
        self.constants: dict[str, Constant] = {}
        self._filled: dict[str, str] = {}
        self._decompose = decompose

    def run(self, nodes: list[Node]) -> tuple[list[Node], Boundary | None]:
        """Infer `nodes` in order; If is replaced by the branch its condition takes, `Decomposed` by its nodes.

        Returns:
            The nodes not reached, and the boundary that stopped it (None at the end).
        """
        pending = list(reversed(nodes))
        while pending:
            node = pending.pop()
            try:
                instead = self._instead(node)
                if instead is not None:
                    pending.extend(reversed(instead))
                    continue
                boundary = self._node(node)
            except ValueNeeded as needed:
                boundary = Boundary((needed.name,))
            if boundary:
                rest = pending[::-1]
                return (rest if boundary.node else [node, *rest]), boundary
            self.done.append(node)
            if node.op.op_type == "ConstantOfShape" and node.outputs[0] not in self.static:
                self._note_fill(node, node.op)
        return [], None

    def _instead(self, node: Node) -> list[Node] | None:
        """The nodes that `node` stands for; None where it is to be inferred itself."""
        if node.op.op_type == "If" and node.op.domain == "":
            return self._branch(node)
        if not self._decompose:
            return None
        loop = repeated(self, node)
        if loop is not None:
            return loop
        decomposed = self._written_as(node)
        if decomposed is not None:
            return self._decomposed(node, decomposed)
        if self.sizes is not None and node.op.op_type == "NonZero" and node.inputs[0] in self._filled:
            return self._coordinates(node)
        return None

    def _node(self, node: Node) -> Boundary | None:
        """Infer the outputs of a node; or why planning has to wait for its inputs."""
        op = node.op
        assert isinstance(op, Op)
        inputs = [self.types[n] if n else None for n in node.inputs]
        missing = dict.fromkeys(n for n in node.inputs if n and n not in self.static)
        if op.data_dependent and missing:
            return Boundary(tuple(missing), node)
        if self.sizes is not None:
            self.sizes.by = node.label
        outputs = infer_node(node, inputs)
        knowledge = self._knowledge(op, inputs, outputs, not missing)
        fold = None
        if knowledge is not Knowledge.RUN and all(t is None or t.is_known for t in inputs):
            fold = _Fold(node, inputs)
        for i, (name, kind) in enumerate(zip(node.outputs, outputs, strict=False)):
            if not name:
                continue
            source = None if knowledge is Knowledge.RUN else kind.source or (fold.output(i) if fold else None)
            if type(kind) is TensorType:  # as `replace` does it, which is slow
                self.types[name] = TensorType(kind.dtype, kind.shape, source, name)
            else:
                self.types[name] = replace(kind, source=source, name=name)
            if knowledge is Knowledge.STATIC and source is not None:
                self.static.add(name)
        surplus = next(filter(None, node.outputs[len(outputs) :]), None)
        if surplus is not None:
            raise InvalidGraph(
                f"node {node.label}: {op.op_type} has {len(outputs)} outputs; '{surplus}' is none of them"
            )
        return None

    def _knowledge(
        self, op: Op, inputs: Sequence[ValueType | None], outputs: Sequence[ValueType], all_static: bool
    ) -> Knowledge:
        # How many elements a result has is open: the GPU makes it, also where its elements follow from the sizes.
        if not op.pure or (self.sizes is not None and any(map(_is_open, outputs))):
            return Knowledge.RUN
        follows = all_static or op.follows_from_types(*inputs)
        if follows and not (op.has_kernel() and self._pins(op, inputs, outputs)):
            return Knowledge.STATIC
        given = [t for t in inputs if t is not None]
        is_fed = all(t.is_known for t in given) and _small([*given, *outputs])
        return Knowledge.FED if is_fed else Knowledge.RUN

    def _pins(self, op: Op, inputs: Sequence[ValueType | None], outputs: Sequence[ValueType]) -> bool:
        """True where NumPy needs the numbers of dynamic dimensions to compute this, or has Reals; the GPU does not."""
        # The value of every input is computed here: what that asks is remembered, what the trial asks is not.
        if self.sizes is None or not sum(map(has_dims, inputs)):
            return False
        if any(isinstance(t, TensorType) and t.dtype.is_float for t in (*inputs, *outputs)):
            return True
        return self.sizes.pinned_by(lambda: execute(op, *inputs))

    def _branch(self, node: Node) -> list[Node]:
        """The nodes of the branch that `node` (If) takes, writing the If's own outputs."""
        if not node.inputs or not node.inputs[0]:
            raise InvalidGraph(f"{node.label}: expected a condition, got none")
        condition = self.types[node.inputs[0]]
        op: Any = node.op
        value = np.asarray(condition.value())
        if value.size != 1 or value.dtype != np.bool_:
            raise InvalidGraph(f"{node.label}: expected a condition of one bool, got {condition}")
        taken = bool(value.reshape(()))
        body: Graph = op.then_branch if taken else op.else_branch
        if len(body.outputs) != len(node.outputs):
            raise InvalidGraph(
                f"{node.label}: the branch taken has {len(body.outputs)} outputs, the node {len(node.outputs)}"
            )
        prefix = f"{node.name or node.outputs[0]}/{'then' if taken else 'else'}/"
        inner = body.renamed(dict(zip(op.captures(), node.inputs[1:], strict=True)), prefix)
        self.add_constants(inner.constants)
        identity = op_class("Identity", "", LATEST)
        ends = [
            Node(identity(), (value.name,), (name,), f"{prefix}{name}")
            for value, name in zip(inner.outputs, node.outputs, strict=True)
            if name
        ]
        return [*inner.nodes, *ends]

    def within(self, inputs: Mapping[str, ValueType]) -> Typing:
        """Types of a body, with `inputs` besides what is known here; `adopt` takes them over."""
        types = {name: replace(kind, name=name) for name, kind in inputs.items()}
        return Typing({**self.types, **types}, set(self.static), self.guards, self.sizes)

    def adopt(self, inner: Typing, nodes: Iterable[Node]) -> None:
        """Take over the types of a body, and these of its nodes."""
        self.types.update(inner.types)
        self.static.update(inner.static)
        self.constants.update(inner.constants)
        self.done += nodes

    def _written_as(self, node: Node) -> Decomposed | None:
        op = node.op
        if isinstance(op, SometimesDecomposed):
            inputs = [self.types[n] if n else None for n in node.inputs]
            with located(node, inputs):
                return op.instead(*inputs)
        return op if isinstance(op, Decomposed) else None

    def _decomposed(self, node: Node, op: Decomposed) -> list[Node]:
        """Expand a decomposed operator; returns its nodes."""
        inputs = [self.types[n] if n else None for n in node.inputs]
        with located(node, inputs):
            outputs = len(op.infer(*inputs))
            if any(node.outputs[outputs:]):
                raise InvalidGraph(f"{op.op_type} has {outputs} outputs; the node names {len(node.outputs)}")
            nodes, constants = op.in_place_of(node, inputs, self.types)
        self.add_constants(constants)
        return nodes

    def _note_fill(self, node: Node, op: Any) -> None:
        shape = self.types[node.inputs[0]]
        if isinstance(shape, TensorType) and shape.rank == 1 and shape.size and bool(op.element()[1] != 0):
            self._filled[node.outputs[0]] = node.inputs[0]

    def _coordinates(self, node: Node) -> list[Node]:
        """What NonZero is of a tensor that is filled with one value other than 0."""
        kind = self.types[node.inputs[0]]
        assert isinstance(kind, TensorType)
        nodes, constants = coordinates(node, self._filled[node.inputs[0]], kind.rank)
        self.add_constants(constants)
        return nodes

    def add_constants(self, constants: Mapping[str, Constant]) -> None:
        """Add values that are constants."""
        for name, constant in constants.items():
            self.types[name] = replace(constant.type, source=constant.numpy, name=name)
            self.static.add(name)
            self.constants[name] = constant

    def graph(self, inputs: list[str], outputs: list[str], constants: dict[str, Constant]) -> TypedGraph:
        """The nodes inferred so far as a graph that gives `outputs`; `constants` gets those of branches taken."""
        constants.update(self.constants)
        nodes = [Node(n.op, n.inputs, n.outputs, n.name) for n in self.done]
        return TypedGraph(nodes, self.types, inputs, outputs, constants, self.static, sizes=self.sizes)


def type_graph(graph: Graph, inputs: Mapping[str, TensorType]) -> TypedGraph:
    """Infer the type of every value of a graph.

    Args:
        inputs: the types of its inputs.

    Raises:
        InvalidArgument: an input has no type, or a shape depends on what only a run knows.
        InvalidGraph: a node does not fit its inputs.
    """
    missing = [v.name for v in graph.inputs if v.name not in inputs]
    if missing:
        raise InvalidArgument(f"the types of inputs {', '.join(missing)} are missing")
    types: dict[str, ValueType] = {n: replace(kind, name=n) for n, kind in inputs.items()}
    constants = {n: c for n, c in graph.constants.items() if n not in types}
    types |= {n: replace(c.type, source=c.numpy, name=n) for n, c in constants.items()}
    typing = Typing(types, set(constants), Guards({}))
    rest, boundary = typing.run(graph.nodes)
    if boundary is not None:
        node = (boundary.node or rest[0]).label
        raise InvalidArgument(
            f"the shapes of node {node} depend on {', '.join(boundary.needed)}, which only a run knows"
        )
    return typing.graph(list(inputs), [v.name for v in graph.outputs], constants)


def _is_open(kind: ValueType) -> bool:
    """Whether it is a tensor that has Dims."""
    return isinstance(kind, TensorType) and any(map(is_dim, kind.shape))


def _small(kinds: Iterable[ValueType]) -> bool:
    """Whether all are tensors of few elements."""
    return all(isinstance(t, TensorType) and upper(t.size) <= FED_LIMIT for t in kinds)


def _executed(op: Op, inputs: Sequence[ValueType | None]) -> tuple[ValueType | None, ...]:
    """`execute`; on the numbers seen where the operator cannot compute with Dims."""
    try:
        return execute(op, *inputs)
    except NUMBERS_ALONE:
        if strict() or not any(has_dims(t) for t in inputs):
            raise
        return execute(op, *(_closed(t) for t in inputs))


def _closed(kind: ValueType | None) -> ValueType | None:
    """The tensor with ints for Dims, which the plan then relies on."""
    if not isinstance(kind, TensorType) or not has_dims(kind):
        return kind
    return known(kind, kind.value().astype(kind.dtype.numpy))


class _Fold:
    """A node whose inputs are known, evaluated when one of its outputs is asked for."""

    __slots__ = ("inputs", "node", "results")

    def __init__(self, node: Node, inputs: list[ValueType | None]) -> None:
        self.node, self.inputs = node, inputs
        self.results: tuple[ValueType | None, ...] | None = None

    def output(self, index: int) -> Callable[[], Any]:
        """Return a function that computes output `index` when it is called first."""

        def read() -> Any:
            if self.results is None:
                op = self.node.op
                assert isinstance(op, Op)
                with located(self.node, self.inputs), np.errstate(all="ignore"):
                    self.results = _executed(op, self.inputs)
            result = self.results[index]
            return None if result is None else result.value()

        return read

"""The NumPy executor: runs a graph, or the body of a control-flow operator, node by node on the host.

Values travel as types that know them (`pyruntime.ir.values`). Every node is inferred with all its inputs known, so
each output has exactly the type `infer` promises: `evaluate`'s result is checked against it and re-encoded to it.
An operator whose `infer` answers with known outputs (If, Loop: their types come from running a body) is not
evaluated again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from pyruntime import errors
from pyruntime.ir import Graph, Node, TensorType, ValueNeeded, ValueType, conform, known
from pyruntime.ops.base import UNFIT, Op
from pyruntime.ops.randomness import Randomness

__all__ = [
    "Limits",
    "Program",
    "RunContext",
    "current",
    "execute",
    "interpret",
    "listed",
    "located",
    "running",
    "where",
]

Values = Mapping[str, ValueType]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a run may use, so that no model can make it hang or exhaust memory.

    Attributes:
        loop_trips: trips of one Loop.
        node_bytes: bytes of one node's outputs.
        depth: bodies within bodies.
    """

    loop_trips: int = 1_000_000
    node_bytes: int = 1 << 34
    depth: int = 64


@dataclass(frozen=True, slots=True)
class RunContext:
    """What surrounds a run; bodies of control-flow operators inherit it.

    Attributes:
        limits: see `Limits`.
        check: called before every node and every trip; ends the run by raising.
        on_node: called after every node with its output types and the seconds it took; bodies' nodes come before
            the node they belong to.
        depth: how many bodies deep this run is.
        random: the generators of the session.
        progress: gets how many operations of a long part on the GPU are done, and how many it has.
    """

    limits: Limits = Limits()
    check: Callable[[], None] | None = None
    on_node: Callable[[Node, Sequence[ValueType | None], float], None] | None = None
    depth: int = 0
    random: Randomness = field(default_factory=Randomness)
    progress: Callable[[int, int], object] | None = None

    def deeper(self) -> RunContext:
        """The context of a body. Raises RuntimeException beyond the depth limit."""
        if self.depth >= self.limits.depth:
            raise errors.RuntimeException(
                f"expected at most {self.limits.depth} bodies within bodies (limit `body_depth`)"
            )
        return replace(self, depth=self.depth + 1)


_context: ContextVar[RunContext | None] = ContextVar("pyruntime_run", default=None)


def current() -> RunContext:
    """The context of the run in progress."""
    return _context.get() or RunContext()


@contextmanager
def running(context: RunContext) -> Iterator[None]:
    """Make `context` the current one."""
    token = _context.set(context)
    try:
        yield
    finally:
        _context.reset(token)


class _Located:
    """See `located`; no generator, as every node is inferred in one."""

    __slots__ = ("_inputs", "_node")

    def __init__(self, node: Node, inputs: Sequence[ValueType | None]) -> None:
        self._node, self._inputs = node, inputs

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, ValueNeeded):
            raise _located(error, self._node, self._inputs) from error


def located(node: Node, inputs: Sequence[ValueType | None] = ()) -> _Located:
    """Name the node in errors raised inside: its label, opset and input types precede the message.

    Raises:
        OrtError: of the class that was raised; anything else becomes RuntimeException.
    """
    return _Located(node, inputs)


def _located(error: Exception, node: Node, inputs: Sequence[ValueType | None]) -> errors.OrtError:
    place = where(node)
    if isinstance(error, errors.OrtError):
        return type(error)(f"{place}: {error}")
    if isinstance(error, MemoryError):
        return errors.OutOfMemory(f"{place}: no memory for the result; inputs {listed(inputs)}")
    if isinstance(error, NotImplementedError):
        return errors.NotImplemented(f"{place}: {error} is not implemented")
    got = f"{error.__class__.__name__}: {error}" if str(error) else error.__class__.__name__
    return errors.RuntimeException(f"{place}: {got}; inputs {listed(inputs)}")


def where(node: Node) -> str:
    """The node as errors name it: its label, domain and opset."""
    opset = node.op.opsets.start if isinstance(node.op, Op) else 0
    domain = f"{node.op.domain}, " if node.op.domain else ""
    return f"{node.label}, {domain}opset {opset}"


def listed(inputs: Sequence[ValueType | None]) -> str:
    """Types of inputs as errors name them."""
    return ", ".join("(absent)" if t is None else str(t) for t in inputs) or "(none)"


def execute(op: Op, *inputs: ValueType | None) -> tuple[ValueType | None, ...]:
    """One operator on known values; the outputs know theirs, and are None where the operator gives none.

    Raises:
        InvalidGraph: the inputs do not fit. OutOfMemory: the outputs would exceed `Limits.node_bytes`.
        RuntimeException: `evaluate` gave something else than `infer` said.
    """
    types = _inferred(op, inputs)
    if all(t is None or t.is_known for t in types):
        return tuple(t and known(t, conform(t, t.value())) for t in types)
    if not any(op.wants(i) and has_elements(t) for i, t in enumerate(types)):
        return tuple(_no_elements(t) if op.wants(i) else None for i, t in enumerate(types))
    nbytes = sum(t.nbytes for t in types if isinstance(t, TensorType))
    limit = current().limits.node_bytes
    if nbytes > limit:
        raise errors.OutOfMemory(
            f"expected outputs of at most {limit} bytes (limit `node_bytes`, see SessionOptions.limits), got {nbytes}"
        )
    values = op.evaluate_typed(inputs, *(None if x is None else x.value() for x in inputs))
    if len(values) > len(types):
        raise errors.RuntimeException(f"infer gave {len(types)} outputs, evaluate {len(values)}")
    made: list[ValueType | None] = []
    for index, type in enumerate(types):
        if type is None or not op.wants(index) or index >= len(values) or _absent(type, values[index]):
            made.append(None)
            continue
        try:
            made.append(known(type, conform(type, values[index])))
        except (TypeError, ValueError) as error:
            raise errors.RuntimeException(f"output {index}: infer and evaluate disagree: {error}") from error
    return tuple(made)


def _inferred(op: Op, inputs: Sequence[ValueType | None]) -> tuple[ValueType | None, ...]:
    """`op.infer`. Raises InvalidGraph: the inputs do not fit, or the node names outputs that are not there."""
    try:
        types = op.infer(*inputs)
    except errors.OrtError:
        raise
    except UNFIT as error:
        raise errors.InvalidGraph(
            f"the inputs ({listed(inputs)}) do not fit: {type(error).__name__}: {error}"
        ) from error
    if any(op.present[len(types) :]):
        raise errors.InvalidGraph(f"{op.op_type} has {len(types)} outputs; the node names {len(op.present)}")
    return types


def has_elements(type: ValueType | None) -> bool:
    """False where there is nothing to compute: a tensor of no elements."""
    return not isinstance(type, TensorType) or bool(type.size)


def _no_elements(type: ValueType | None) -> ValueType:
    assert isinstance(type, TensorType)
    return known(type, np.zeros(type.shape, type.dtype.numpy))


def _absent(type: ValueType, value: Any) -> bool:
    return value is None and isinstance(type, TensorType)


@dataclass(frozen=True, slots=True)
class _Step:
    """A node, and the values without a consumer after it."""

    node: Node
    release: tuple[str, ...]


class Program:
    """A graph made ready to run: the nodes its outputs need, in order, and when each value can go.

    Attributes:
        outputs: names of the values a run returns.
    """

    def __init__(self, graph: Graph, outputs: Sequence[str] | None = None) -> None:
        self.graph = graph
        self.outputs = tuple(v.name for v in graph.outputs) if outputs is None else tuple(outputs)
        needed = set(self.outputs)
        kept: list[Node] = []
        for node in reversed(graph.nodes):
            if any(name in needed for name in node.outputs if name):
                kept.append(node)
                needed.update(filter(None, node.inputs))
        self._steps = _released(kept[::-1], set(self.outputs))
        self._constants = {
            name: replace(c.type, source=c.numpy, name=name) for name, c in graph.constants.items() if name in needed
        }

    def run(self, feeds: Values) -> dict[str, ValueType]:
        """The outputs for `feeds`: the graph's inputs and captures, all known.

        Raises:
            MissingInput: a value that no node makes and no input feeds. OrtError: what a node raises, with its name.
        """
        context = current()
        values: dict[str, ValueType] = {**self._constants, **feeds}
        with np.errstate(all="ignore"):
            for step in self._steps:
                if context.check is not None:
                    context.check()
                began = time.perf_counter()
                made = self._apply(step.node, values)
                if context.on_node is not None:
                    context.on_node(step.node, made, time.perf_counter() - began)
                for name, value in zip(step.node.outputs, made, strict=False):
                    if name and value is not None:
                        values[name] = value
                for name in step.release:
                    values.pop(name, None)
        return {name: self._lookup(values, name, "an output") for name in self.outputs}

    def _apply(self, node: Node, values: Values) -> tuple[ValueType | None, ...]:
        inputs = [self._lookup(values, name, f"an input of {node.label}") if name else None for name in node.inputs]
        with located(node, inputs):
            return execute(cast(Op, node.op), *inputs)

    def _lookup(self, values: Values, name: str, role: str) -> ValueType:
        found = values.get(name)
        if found is None:
            raise errors.MissingInput(f"'{name}', {role}, has no value; values at hand: {', '.join(values) or 'none'}")
        return found


def _released(nodes: Sequence[Node], kept: set[str]) -> list[_Step]:
    """Steps that release every value after its last consumer (after the node that makes it, where it has none)."""
    seen = set(kept)
    steps: list[_Step] = []
    for node in reversed(nodes):
        last = [n for n in dict.fromkeys((*node.inputs, *node.outputs)) if n and n not in seen]
        seen.update(last)
        steps.append(_Step(node, tuple(last)))
    return steps[::-1]


def interpret(
    graph: Graph, feeds: Values, outputs: Sequence[str] | None = None, context: RunContext | None = None
) -> dict[str, ValueType]:
    """Run `graph` on NumPy.

    Args:
        feeds: the value of every graph input (and capture), known; see `ir.known`.
        outputs: names wanted; default: the graph's outputs. Nodes they do not need are not run.
        context: limits and callbacks; default: those of the run in progress.

    Returns:
        The outputs by name; each knows its value.

    Raises:
        MissingInput: a value is neither fed nor made. OrtError: what a node raised, with its name in front.
    """
    with running(context or current()):
        return Program(graph, outputs).run(feeds)

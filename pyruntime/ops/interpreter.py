"""Reference executor: runs a graph, or the body of a control-flow operator, node by node with NumPy.

Values are types that carry their value (`pyruntime.ir.values`). Each node is inferred with all inputs known, and the
result of `evaluate` is checked against, and converted to, the exact type that `infer` returns. If `infer` already
returns values (If and Loop run their bodies to find types), the node is not evaluated again.
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
from pyruntime.ir import DType, Graph, Node, TensorType, ValueNeeded, ValueType, conform, known
from pyruntime.ops.base import UNFIT, Op
from pyruntime.ops.float32_sums import float32_sums, is_half
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
    """Resource limits of a run, against models that hang or exhaust memory.

    Attributes:
        loop_trips: iterations of one Loop.
        node_bytes: bytes of the outputs of one node.
        depth: nesting depth of control-flow bodies.
    """

    loop_trips: int = 1_000_000
    node_bytes: int = 1 << 34
    depth: int = 64


@dataclass(frozen=True, slots=True)
class RunContext:
    """Settings of a run, which bodies of control-flow operators inherit.

    Attributes:
        limits: see `Limits`.
        check: called before every node and every loop iteration; raises to end the run.
        on_node: called after every node with its output types and its duration in seconds. Nodes of a body are
            reported before the node that owns the body.
        depth: nesting depth of the body being run.
        random: random number generators of the session.
        progress: called with (operations done, operations in total) during long GPU work.
    """

    limits: Limits = Limits()
    check: Callable[[], None] | None = None
    on_node: Callable[[Node, Sequence[ValueType | None], float], None] | None = None
    depth: int = 0
    random: Randomness = field(default_factory=Randomness)
    progress: Callable[[int, int], object] | None = None

    def deeper(self) -> RunContext:
        """Return the context for a nested body. Raises RuntimeException beyond the depth limit."""
        if self.depth >= self.limits.depth:
            raise errors.RuntimeException(
                f"expected at most {self.limits.depth} bodies within bodies (limit `body_depth`)"
            )
        return replace(self, depth=self.depth + 1)


_context: ContextVar[RunContext | None] = ContextVar("pyruntime_run", default=None)


def current() -> RunContext:
    """Return the context of the current run."""
    return _context.get() or RunContext()


@contextmanager
def running(context: RunContext) -> Iterator[None]:
    """Make `context` current inside the `with` block."""
    token = _context.set(context)
    try:
        yield
    finally:
        _context.reset(token)


class _Located:
    """Context manager of `located`. No generator, because it is entered for every node."""

    __slots__ = ("_inputs", "_node")

    def __init__(self, node: Node, inputs: Sequence[ValueType | None]) -> None:
        self._node, self._inputs = node, inputs

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, ValueNeeded):
            raise _located(error, self._node, self._inputs) from error


def located(node: Node, inputs: Sequence[ValueType | None] = ()) -> _Located:
    """Prefix errors raised inside the `with` block with the node's label, opset and input types.

    Raises:
        OrtError: of the class that was raised; other exceptions become RuntimeException.
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
    """Return the node's label, domain and opset for error messages."""
    opset = node.op.opsets.start if isinstance(node.op, Op) else 0
    domain = f"{node.op.domain}, " if node.op.domain else ""
    return f"{node.label}, {domain}opset {opset}"


def listed(inputs: Sequence[ValueType | None]) -> str:
    """Format input types for error messages."""
    return ", ".join("(absent)" if t is None else str(t) for t in inputs) or "(none)"


def execute(op: Op, *inputs: ValueType | None) -> tuple[ValueType | None, ...]:
    """Run one operator on types that carry values, and return its outputs in the same form (None if not computed).

    Raises:
        InvalidGraph: the inputs do not fit.
        OutOfMemory: the outputs would exceed `Limits.node_bytes`.
        RuntimeException: `evaluate` returned something that contradicts `infer`.
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
    """Return `op.infer(*inputs)`. Raises InvalidGraph if the inputs do not fit or the node names too many outputs."""
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
    """Return False for a tensor with zero elements, for which nothing is computed."""
    return not isinstance(type, TensorType) or bool(type.size)


def _no_elements(type: ValueType | None) -> ValueType:
    assert isinstance(type, TensorType)
    return known(type, np.zeros(type.shape, type.dtype.numpy))


def _cast(type: ValueType | None, dtype: DType) -> Any:
    """Convert a tensor of float16 or float32 to the other of these; other values stay as they are."""
    if not isinstance(type, TensorType) or type.dtype not in (DType.FLOAT, DType.FLOAT16):
        return type
    return known(replace(type, dtype=dtype), type.value().astype(dtype.numpy))


def _absent(type: ValueType, value: Any) -> bool:
    return value is None and isinstance(type, TensorType)


@dataclass(frozen=True, slots=True)
class _Step:
    """A node, and the names of the values whose last use it is."""

    node: Node
    release: tuple[str, ...]


class Program:
    """A graph prepared for execution: the nodes that the outputs need, and when each value can be freed.

    Attributes:
        outputs: names of the values that a run returns.
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
        self._sums = float32_sums(kept[::-1], graph.constants.__contains__, products=True)
        self._constants = {
            name: replace(c.type, source=c.numpy, name=name) for name, c in graph.constants.items() if name in needed
        }

    def run(self, feeds: Values) -> dict[str, ValueType]:
        """Run the graph and return its outputs by name.

        Args:
            feeds: graph inputs and captured outer values by name, with values.

        Raises:
            MissingInput: no node produces, and no feed contains, a required value.
            OrtError: raised by a node; the message starts with the node's name.
        """
        context = current()
        values: dict[str, ValueType] = {**self._constants, **feeds}
        widened: set[str] = set()  # values of float16 that are at hand in float32
        with np.errstate(all="ignore"):
            for step in self._steps:
                if context.check is not None:
                    context.check()
                began = time.perf_counter()
                made = self._apply(step.node, values, widened)
                if context.on_node is not None:
                    context.on_node(step.node, made, time.perf_counter() - began)
                for name, value in zip(step.node.outputs, made, strict=False):
                    if name and value is not None:
                        values[name] = value
                for name in step.release:
                    values.pop(name, None)
            found = {name: self._lookup(values, name, "an output") for name in self.outputs}
            return {name: _cast(y, DType.FLOAT16) if name in widened else y for name, y in found.items()}

    def _apply(self, node: Node, values: Values, widened: set[str]) -> tuple[ValueType | None, ...]:
        inputs = [self._lookup(values, name, f"an input of {node.label}") if name else None for name in node.inputs]
        if node in self._sums and (node.inputs[0] in widened or is_half(inputs[0])):
            inputs = [_cast(x, DType.FLOAT) for x in inputs]
            widened.update(node.outputs)
        elif widened:
            inputs = [_cast(x, DType.FLOAT16) if n in widened else x for n, x in zip(node.inputs, inputs, strict=True)]
        with located(node, inputs):
            return execute(cast(Op, node.op), *inputs)

    def _lookup(self, values: Values, name: str, role: str) -> ValueType:
        found = values.get(name)
        if found is None:
            raise errors.MissingInput(f"'{name}', {role}, has no value; values at hand: {', '.join(values) or 'none'}")
        return found


def _released(nodes: Sequence[Node], kept: set[str]) -> list[_Step]:
    """Return the steps, each with the values to free after it: those without a later consumer."""
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
    """Run `graph` with NumPy.

    Args:
        feeds: graph inputs and captured outer values by name, with values (`ir.known`).
        outputs: names of the values to compute; default: the graph's outputs. Only nodes they depend on are run.
        context: limits and callbacks; default: those of the current run.

    Returns:
        The outputs by name, with values.

    Raises:
        MissingInput: a required value is neither fed nor produced.
        OrtError: raised by a node; the message starts with the node's name.
    """
    with running(context or current()):
        return Program(graph, outputs).run(feeds)

"""Operators with subgraphs: run a body with the outer values that it uses, and stack the results of its iterations.

A node with subgraphs has the outer values its bodies use as trailing inputs, each once, in the order in which the
bodies (by attribute name) list them in `Graph.captures`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any, ClassVar

import numpy as np

from pyruntime import errors
from pyruntime.ir import (
    Array,
    DeclaredTensor,
    DType,
    Graph,
    OptionalType,
    SequenceType,
    TensorType,
    ValueInfo,
    ValueType,
    declared_element,
    known,
)
from pyruntime.ops.base import Op
from pyruntime.ops.interpreter import Program, current, running

__all__ = ["Body", "BodyOp", "Values", "empty_stack", "permit", "sequence_of", "stacked", "truth", "without_rows"]

Inputs = Sequence[ValueType | None]
Values = Sequence[ValueType]


class BodyOp(Op):
    """An operator with subgraphs. Its output types follow from running them, so `infer` returns known values.

    Class attributes:
        arity: the least and the most inputs of its own, without captured ones; None: no bound.
    """

    data_dependent = True
    arity: ClassVar[tuple[int, int | None]] = (0, None)

    def bodies(self) -> Iterator[Graph]:
        """The subgraphs by attribute name."""
        for field in sorted(fields(self), key=lambda f: f.name):
            value = getattr(self, field.name)
            if isinstance(value, Graph):
                yield value

    @property
    def pure(self) -> bool:  # type: ignore[override]
        """True where no body draws random numbers."""
        return all(getattr(node.op, "pure", True) for body in self.bodies() for node in body.nodes)

    def captures(self) -> list[str]:
        """What the bodies call the outer values they use, in the order of the node's trailing inputs."""
        return list(dict.fromkeys(name for body in self.bodies() for name in body.captures))

    def split(self, inputs: Inputs) -> tuple[list[ValueType | None], dict[str, ValueType]]:
        """The operator's own inputs, and the captured outer values by name."""
        names = self.captures()
        own = len(inputs) - len(names)
        if own < 0:
            self.fail(f"{len(names)} captured values", f"{len(inputs)} inputs")
        outer = {name: value for name, value in zip(names, inputs[own:], strict=True) if value is not None}
        return list(inputs[:own]), outer

    def evaluate_typed(self, types: tuple[ValueType | None, ...], *inputs: Any) -> tuple[Any, ...]:
        given = [t if t is None or t.is_known else known(t, x) for t, x in zip(types, inputs, strict=True)]
        return tuple(t.value() for t in self.infer(*given))


class Body:
    """A subgraph made ready to run with its captured values.

    Attributes:
        inputs, outputs: the subgraph's own.
    """

    def __init__(self, op: Op, graph: Graph, outer: dict[str, ValueType]) -> None:
        self._op = op
        self._program = Program(graph)
        self._outer = outer
        self._context = current().deeper()
        self.inputs = graph.inputs
        self.outputs = graph.outputs

    def __call__(self, *values: ValueType | None) -> tuple[ValueType, ...]:
        """Outputs for the inputs given in order."""
        if len(values) != len(self.inputs):
            self._op.fail(f"a body with {len(values)} inputs", f"{len(self.inputs)}")
        feeds = {**self._outer, **{info.name: self.given(i, values[i]) for i, info in enumerate(self.inputs)}}
        with running(self._context):
            made = self._program.run(feeds)
        return tuple(made[info.name] for info in self.outputs)

    def scalar(self, index: int, value: Any, dtype: DType) -> ValueType:
        """A number for input `index`: rank 0, or rank 1 where the body declares that."""
        declared = self.inputs[index].type
        rank = len(declared.shape or ()) if isinstance(declared, DeclaredTensor) else 0
        shape = (1,) * rank
        return known(TensorType(dtype, shape), np.full(shape, value, dtype.numpy))

    def given(self, index: int, value: ValueType | None) -> ValueType:
        """`value` for input `index`; an absent one is an empty optional where the body declares an optional."""
        if value is not None:
            return value
        info = self.inputs[index]
        element = declared_element(info.type)
        if not isinstance(element, OptionalType):
            self._op.fail(f"a value for the body's input '{info.name}'", "none")
        return known(element, None)


def permit(op: Op, trip: int) -> None:
    """Let a loop make its trip number `trip`.

    Raises:
        RuntimeException: more trips than `Limits.loop_trips`. Whatever ends the run (`RunContext.check`).
    """
    context = current()
    if context.check is not None:
        context.check()
    if trip >= context.limits.loop_trips:
        raise errors.RuntimeException(
            f"{op.op_type}: expected at most {trip} trips (limit `loop_trips`), got more; "
            "raise it in SessionOptions.limits"
        )


def truth(op: Op, value: ValueType) -> bool:
    """The condition a one-element bool tensor holds."""
    if not isinstance(value, TensorType) or value.dtype is not DType.BOOL or value.size != 1:
        op.fail("a condition of type bool with one element", value)
    return bool(value.value().reshape(()))


def stacked(op: Op, values: Sequence[ValueType], axis: int = 0, reverse: bool = False) -> ValueType:
    """What every trip made, along a new axis; the last trip first where `reverse`."""
    first = values[0]
    for value in values:
        if not isinstance(value, TensorType):
            op.fail("tensors as scan outputs", value)
        if value != first:
            op.fail(f"every trip's scan output to be {first}", value)
    assert isinstance(first, TensorType)
    arrays: list[Array] = [v.value() for v in (reversed(values) if reverse else values)]
    y = np.stack(arrays, op.axis_of(axis, first.rank + 1))
    return known(TensorType(first.dtype, y.shape), y)


def empty_stack(op: Op, info: ValueInfo, axis: int = 0) -> ValueType:
    """The scan output of no trip: its type is what the body declares, unknown dimensions count as 0."""
    declared = info.type
    if not isinstance(declared, DeclaredTensor):
        raise errors.InvalidGraph(
            f"{op.op_type}: no trip was made, and the body does not declare the type of its output '{info.name}'"
        )
    dims = [d if isinstance(d, int) else 0 for d in declared.shape or ()]
    dims.insert(op.axis_of(axis, len(dims) + 1), 0)
    return known(TensorType(declared.dtype, tuple(dims)), np.empty(dims, declared.dtype.numpy))


def without_rows(op: Op, value: ValueType) -> ValueType:
    """The scan output of no trip whose rows would be like `value`."""
    if not isinstance(value, TensorType):
        op.fail("tensors as scan outputs", value)
    shape = (0, *value.shape)
    return known(TensorType(value.dtype, shape), np.empty(shape, value.dtype.numpy))


def sequence_of(op: Op, info: ValueInfo, values: Sequence[ValueType]) -> ValueType:
    """Return the values as a sequence. An empty one has the element type that the body declares."""
    element = values[0].dtype if values and isinstance(values[0], TensorType) else declared_element(info.type)
    if element is None:
        raise errors.InvalidGraph(f"{op.op_type}: an empty sequence, and the body does not declare '{info.name}'")
    return known(SequenceType(element), [v.value() for v in values])

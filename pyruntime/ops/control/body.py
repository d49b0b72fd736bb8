"""Base of operators with subgraphs: run a body with the outer values it captures, and stack per-iteration outputs.

The trailing inputs of such a node are the captured outer values of all bodies, each once. They are ordered by the
attribute name of the body, then as in `Graph.captures`.
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
    """Base of operators with subgraphs. `infer` runs the bodies to find the output types, so these carry values.

    Class attributes:
        arity: minimum and maximum number of inputs without captured values; a maximum of None is unlimited.
    """

    data_dependent = True
    arity: ClassVar[tuple[int, int | None]] = (0, None)

    def bodies(self) -> Iterator[Graph]:
        """Yield the subgraphs, ordered by attribute name."""
        for field in sorted(fields(self), key=lambda f: f.name):
            value = getattr(self, field.name)
            if isinstance(value, Graph):
                yield value

    @property
    def pure(self) -> bool:  # type: ignore[override]
        """Whether no body draws random numbers."""
        return all(getattr(node.op, "pure", True) for body in self.bodies() for node in body.nodes)

    def captures(self) -> list[str]:
        """Return the names of the captured outer values, in the order of the trailing inputs."""
        return list(dict.fromkeys(name for body in self.bodies() for name in body.captures))

    def split(self, inputs: Inputs) -> tuple[list[ValueType | None], dict[str, ValueType]]:
        """Split the inputs into the operator's inputs and the captured outer values by name."""
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
    """A subgraph bound to its captured values, ready to run.

    Attributes:
        inputs, outputs: declared inputs and outputs of the subgraph.
    """

    def __init__(self, op: Op, graph: Graph, outer: dict[str, ValueType]) -> None:
        self._op = op
        self._program = Program(graph)
        self._outer = outer
        self._context = current().deeper()
        self.inputs = graph.inputs
        self.outputs = graph.outputs

    def __call__(self, *values: ValueType | None) -> tuple[ValueType, ...]:
        """Run the subgraph and return its outputs."""
        if len(values) != len(self.inputs):
            self._op.fail(f"a body with {len(values)} inputs", f"{len(self.inputs)}")
        feeds = {**self._outer, **{info.name: self.given(i, values[i]) for i, info in enumerate(self.inputs)}}
        with running(self._context):
            made = self._program.run(feeds)
        return tuple(made[info.name] for info in self.outputs)

    def scalar(self, index: int, value: Any, dtype: DType) -> ValueType:
        """Return a scalar for input `index`; a tensor of shape [1] where the body declares rank 1."""
        declared = self.inputs[index].type
        rank = len(declared.shape or ()) if isinstance(declared, DeclaredTensor) else 0
        shape = (1,) * rank
        return known(TensorType(dtype, shape), np.full(shape, value, dtype.numpy))

    def given(self, index: int, value: ValueType | None) -> ValueType:
        """Return `value` for input `index`. None becomes an empty optional where the body declares an optional."""
        if value is not None:
            return value
        info = self.inputs[index]
        element = declared_element(info.type)
        if not isinstance(element, OptionalType):
            self._op.fail(f"a value for the body's input '{info.name}'", "none")
        return known(element, None)


def permit(op: Op, trip: int) -> None:
    """Check that a loop may run iteration `trip`.

    Raises:
        RuntimeException: `Limits.loop_trips` is reached. Further exceptions come from `RunContext.check`.
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
    """Return the bool in a one-element tensor. Raises InvalidGraph for other types."""
    if not isinstance(value, TensorType) or value.dtype is not DType.BOOL or value.size != 1:
        op.fail("a condition of type bool with one element", value)
    return bool(value.value().reshape(()))


def stacked(op: Op, values: Sequence[ValueType], axis: int = 0, reverse: bool = False) -> ValueType:
    """Stack the tensors of all iterations along a new axis, in reverse order where `reverse`."""
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
    """Return the scan output of zero iterations, typed as the body declares; unknown dimensions become 0."""
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
    """Return a sequence of the values. The element type of an empty one is what the body declares."""
    element = values[0].dtype if values and isinstance(values[0], TensorType) else declared_element(info.type)
    if element is None:
        raise errors.InvalidGraph(f"{op.op_type}: an empty sequence, and the body does not declare '{info.name}'")
    return known(SequenceType(element), [v.value() for v in values])

"""Operators that are chains of other operators: written once, run on types, on NumPy and on the GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from pyruntime.ir import Array, Constant, TensorType, ValueType
from pyruntime.kernels import Dispatch, Operand, Role, Target, constant, inp, out
from pyruntime.ops.base import Op
from pyruntime.ops.interpreter import execute

__all__ = ["Composite", "Runner"]

_FIRST = 100_000
"""Scratch numbers of a chain's steps begin here, a thousand for each: beyond those that operators use themselves."""

_STEP = 1000


class Runner(Protocol):
    """What a chain is written with. A value is opaque but for its type."""

    def run(self, op: Op, *values: Any) -> tuple[Any, ...]:
        """The outputs of an operator; an absent optional input is None."""
        ...

    def type_of(self, value: Any) -> TensorType:
        """Element type and shape."""
        ...

    def constant(self, array: Array) -> Any:
        """A value made of numbers."""
        ...


class Composite(Op):
    """An operator that says in `compose` which operators it is made of."""

    def compose(self, runner: Runner, *inputs: Any) -> tuple[Any, ...]:
        """The outputs from the inputs, absent ones None."""
        raise NotImplementedError(f"{self.op_type}.compose")

    def infer(self, *inputs: TensorType | None) -> tuple[TensorType, ...]:
        return tuple(t.with_shape(*t.shape) for t in self.compose(_Types(), *inputs))

    def evaluate_typed(self, types: tuple[ValueType | None, ...], *inputs: Array | None) -> tuple[Array, ...]:
        known = [
            None if t is None or x is None else replace(t, source=_Known(x))
            for t, x in zip(types, inputs, strict=False)
        ]
        return tuple(t.value() for t in self.compose(_Values(), *known))

    def lower(self, target: Target, *inputs: TensorType | None) -> tuple[Dispatch, ...]:
        lowering = _Lowering(target)
        operands = [None if t is None else inp(i, t) for i, t in enumerate(inputs)]
        results = self.compose(lowering, *operands)
        return lowering.finished(results)


class _Known:
    """The source of a value that is at hand."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def __call__(self) -> Array:
        return self.array


class _Types:
    """Runs a chain on types."""

    def run(self, op: Op, *values: TensorType | None) -> tuple[Any, ...]:
        return op.infer(*values)

    def type_of(self, value: TensorType) -> TensorType:
        return value

    def constant(self, array: Array) -> TensorType:
        made = Constant.from_array(array)
        return replace(made.type, source=made.numpy)


class _Values(_Types):
    """Runs a chain on NumPy."""

    def run(self, op: Op, *values: TensorType | None) -> tuple[Any, ...]:
        with np.errstate(all="ignore"):
            return execute(op, *values)


class _Lowering:
    """Collects the dispatches of a chain."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.made: list[Dispatch] = []
        self.steps = 0
        self.constants = 0

    def type_of(self, value: Operand) -> TensorType:
        return value.type

    def constant(self, array: Array) -> Operand:
        made = Constant.from_array(array)
        self.constants += 1
        operand = constant(_FIRST - self.constants, made)
        return replace(operand, type=replace(made.type, source=made.numpy))

    def run(self, op: Op, *values: Operand | None) -> tuple[Any, ...]:
        types = [None if v is None else v.type for v in values]
        results: tuple[Any, ...] = op.infer(*types)
        alias = op.alias(*types)
        if alias is not None:
            source = values[alias]
            assert source is not None
            return (replace(source, type=results[0]),)
        first = _FIRST + _STEP * self.steps
        self.steps += 1
        outputs = tuple(Operand(Role.SCRATCH, first + i, t) for i, t in enumerate(results))
        for dispatch in op.lower(self.target, *types):
            operands = tuple(_moved(o, values, outputs, first + 100) for o in dispatch.operands)
            self.made.append(replace(dispatch, operands=operands))
        return outputs

    def finished(self, results: tuple[Any, ...]) -> tuple[Dispatch, ...]:
        """The dispatches, those that make `results` writing the node's outputs."""
        names = {(r.role, r.index): i for i, r in enumerate(results)}
        return tuple(replace(d, operands=tuple(_renamed(o, names) for o in d.operands)) for d in self.made)


def _moved(operand: Operand, values: tuple[Operand | None, ...], outputs: tuple[Operand, ...], first: int) -> Operand:
    """An operand of a step as one of the chain; its view of the bytes is kept."""
    if operand.role is Role.INPUT:
        source = values[operand.index]
        assert source is not None
        return Operand(source.role, source.index, operand.type, source.data)
    if operand.role is Role.OUTPUT:
        return replace(outputs[operand.index], type=operand.type)
    return replace(operand, index=first + operand.index)


def _renamed(operand: Operand, names: dict[tuple[Role, int], int]) -> Operand:
    if operand.role is not Role.SCRATCH or (operand.role, operand.index) not in names:
        return operand
    return out(names[operand.role, operand.index], operand.type)

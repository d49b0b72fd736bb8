"""Repeat: a Scan, or a Loop with a known trip count, as dispatches that the GPU repeats.

    states, rows.. = body(i, states.., slices.., others..)   for i = 0, 1, ..., times - 1

Inputs: initial states, tensors that are sliced along axis 0, and values that all iterations read. Outputs: final
states, and the rows of all iterations stacked along a new axis 0. `compiler/loops.py` creates it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pyruntime.ir import Array, Graph, TensorType, TypedGraph, ValueInfo, ValueType, known
from pyruntime.kernels import Dispatch, Target
from pyruntime.ops.base import Op, Unsupported, op
from pyruntime.ops.interpreter import Program, current, running

__all__ = ["Repeat"]


@op("Repeat", opsets=range(1, 2), domain="pyruntime")
class Repeat(Op):
    """A loop of `times` iterations.

    Attributes:
        kind: operator type in the model.
        body: graph with inputs and outputs in the order above.
        times: an int or a Dim.
        states: number of states.
        sliced: number of sliced inputs.
        backward: whether to slice or stack in reverse order, for each sliced input and then each stacked output.
        dispatches: the lowered body; None: not lowered.
        refusal: reason why the body cannot run on the device.
    """

    pure = False
    """False, so that no two nodes are merged: each has a separate body."""

    kind: str
    body: Any
    times: Any
    states: int
    sliced: int
    backward: tuple[bool, ...]
    dispatches: tuple[Dispatch, ...] | None = None
    refusal: str = ""

    @property
    def title(self) -> str:
        """Operator type in the model."""
        return self.kind

    def infer(self, *inputs: TensorType) -> tuple[ValueType, ...]:
        rows = (self.body.tensor(name) for name in self.body.outputs[self.states :])
        stacks = (TensorType(row.dtype, (self.times, *row.shape)) for row in rows)
        return (*(TensorType(x.dtype, x.shape) for x in inputs[: self.states]), *stacks)

    def evaluate_typed(self, types: tuple[ValueType | None, ...], *inputs: Any) -> tuple[Any, ...]:
        body: TypedGraph = self.body
        count = self.states + self.sliced
        program = Program(_untyped(body))
        fixed: dict[str, ValueType] = {n: body.types[n] for n in _statics(body)}
        fixed |= _known(body, body.inputs[1 + count :], inputs[count:])
        states, slices = list(inputs[: self.states]), inputs[self.states : count]
        context = current().deeper()
        rows: list[list[Array]] = [[] for _ in body.outputs[self.states :]]
        for trip in range(int(self.times)):
            if context.check is not None:
                context.check()
            now = [x[-1 - trip if back else trip] for x, back in zip(slices, self.backward, strict=False)]
            counter = np.full(body.tensor(body.inputs[0]).shape, trip, np.int64)
            feeds = fixed | _known(body, body.inputs[: 1 + count], [counter, *states, *now])
            with running(context):
                made = [kind.value() for kind in map(program.run(feeds).__getitem__, body.outputs)]
            states = made[: self.states]
            for row, value in zip(rows, made[self.states :], strict=True):
                row.append(value)
        return (*states, *map(self._stacked, range(len(rows)), rows))

    def _stacked(self, number: int, rows: list[Array]) -> Array:
        """Stack the rows of stacked output `number`."""
        kind = self.body.tensor(self.body.outputs[self.states + number])
        if not rows:
            return np.empty((0, *kind.shape), kind.dtype.numpy)
        return np.stack(rows[::-1] if self.backward[self.sliced + number] else rows)

    def lower(self, target: Target, *inputs: TensorType) -> tuple[Dispatch, ...]:
        if self.dispatches is None:
            raise Unsupported(self.refusal)
        return self.dispatches


def _statics(body: TypedGraph) -> list[str]:
    """Return the names of the values with known contents that the body reads."""
    read = {n for node in body.nodes for n in node.inputs if n} | {*body.outputs}
    return [n for n in read if n in body.static]


def _known(body: TypedGraph, names: Sequence[str], values: Sequence[Any]) -> dict[str, ValueType]:
    return {n: known(body.types[n], value) for n, value in zip(names, values, strict=True)}


def _untyped(body: TypedGraph) -> Graph:
    """Return the body for the interpreter, with known values as inputs."""
    nodes = [n for n in body.nodes if any(o and o not in body.static for o in n.outputs)]
    return Graph("", [ValueInfo(n) for n in body.inputs], [ValueInfo(n) for n in body.outputs], nodes)

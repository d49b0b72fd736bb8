"""ONNX's and com.microsoft's cases of one node with an axis, or all axes of one size, emptied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyruntime.errors import OrtError
from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Role, Target
from pyruntime.kernels.legalize import legalize
from pyruntime.ops.base import Op, Unsupported
from pyruntime.ops.decomposed import Decomposed
from pyruntime.ops.interpreter import execute, has_elements
from tests.contrib.case import draws, op_of
from tests.harness import node_tests, op_and_data, single_node, typed

__all__ = ["Emptied", "emptied_cases"]


@dataclass(frozen=True)
class Emptied:
    """One operator on inputs of which one has no elements, that gives some nevertheless.

    Attributes:
        types: those of the inputs, which know their values.
        wanted: what NumPy gives; None for an output that is absent.
        dispatches: what it is lowered to, with elements to write.
    """

    name: str
    op: Op
    inputs: list[Array | None]
    types: list[Any]
    wanted: list[Any]
    dispatches: tuple[Dispatch, ...]

    @property
    def has_scratch(self) -> bool:
        """True where dispatches use scratch memory."""
        return any(o.role is Role.SCRATCH for d in self.dispatches for o in d.operands)


def emptied_cases(target: Target) -> Iterator[Emptied]:
    """Every case whose inputs still fit the operator, and that it has kernels for."""
    for name, op, inputs in _cases():
        for number, arrays in enumerate(_emptied(inputs)):
            types: list[Any] = [typed(x) for x in arrays]
            try:
                outs = op.infer(*types)
                if not any(op.wants(i) and has_elements(t) for i, t in enumerate(outs)):
                    continue
                made = execute(op, *types)
            except OrtError:
                continue
            try:
                lowered = () if op.alias(*types) is not None else legalize(target, op.lower(target, *types))
            except Unsupported:
                continue
            if dispatches := tuple(d for d in lowered if not d.is_empty):
                wanted = [None if t is None else t.value() for t in made]
                yield Emptied(f"{name}, {number}", op, arrays, types, wanted, dispatches)


def _cases() -> Iterator[tuple[str, Op, Sequence[Any]]]:
    for name, case in node_tests().items():
        node = single_node(case)
        if node is None or any(a.HasField("g") for a in node.attribute):
            continue
        op, data = op_and_data(name)
        if not isinstance(op, Decomposed) and not any(isinstance(x, list) for x in data[0][0]):
            yield name, op, data[0][0]
    for name, draw in draws().items():
        for seed in range(2):
            case_drawn = draw(np.random.default_rng(seed))
            drawn = op_of(case_drawn)
            if not isinstance(drawn, Decomposed):
                yield f"{name} {seed}", drawn, case_drawn.inputs


def _emptied(inputs: Sequence[Any]) -> Iterator[list[Array | None]]:
    """The inputs with all axes of one size emptied, then with one axis of one input."""
    types: list[TensorType | None] = [typed(x) for x in inputs]
    arrays = [None if t is None else t.value() for t in types]
    shapes = [() if x is None else x.shape for x in arrays]
    sizes = sorted({n for shape in shapes for n in shape if n})
    every = [{(i, d) for i, shape in enumerate(shapes) for d, n in enumerate(shape) if n == size} for size in sizes]
    every += [{(i, d)} for i, shape in enumerate(shapes) for d in range(len(shape))]
    for axes in every:
        yield [
            None if x is None else x[tuple(slice(0, 0 if (i, d) in axes else None) for d in range(x.ndim))]
            for i, x in enumerate(arrays)
        ]

"""FusedElementwise: a chain or tree of elementwise operators in one kernel.

y = f_n(... f_1(x_0, x_1) ..., x_k), where each f_i is an elementwise operator, with NumPy broadcasting. Intermediate
floats are not rounded: half precision is computed in float32 and rounded once, at the end.
`passes/fusion/fuse_elementwise.py` creates it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from pyruntime.ir import Array, DType, TensorType, ValueType
from pyruntime.kernels import Dispatch, Target, elementwise, inp, out
from pyruntime.ops.base import Op, Unsupported, op
from pyruntime.ops.elementwise.elementwise import Elementwise

__all__ = ["FusedElementwise", "Number", "Pointwise", "Source", "Step", "fusible"]


@dataclass(frozen=True, slots=True)
class Number:
    """A constant scalar input of a step; a uniform of the kernel."""

    value: float | int
    dtype: DType

    @property
    def type(self) -> TensorType:
        """Type of a scalar tensor."""
        return TensorType(self.dtype, ())


COMMUTATIVE = frozenset({"a + b", "a * b"})
"""Expressions whose result is bitwise the same with inputs exchanged."""

Source: TypeAlias = int | Number | None
"""Input of a step: i >= 0 is input i of the chain, -1 - s the result of step s, None an absent input."""


@dataclass(frozen=True, slots=True)
class Step:
    """One operator of a chain, and its inputs."""

    op: Elementwise
    inputs: tuple[Source, ...]


@dataclass(frozen=True, slots=True)
class Pointwise:
    """WGSL of a chain.

    Attributes:
        code: statements over the inputs `in0`, `in1`, ... that end in `return`.
        helpers: functions that `code` calls.
        result: type of the result.
        scalars: values of the uniforms that `code` uses.
        inputs: indices of the inputs that `code` reads.
    """

    code: str
    helpers: str
    result: TensorType
    scalars: dict[str, float | int] = field(default_factory=dict)
    inputs: tuple[int, ...] = ()


@op("FusedElementwise", opsets=range(1, 2), domain="pyruntime")
class FusedElementwise(Op):
    """The steps, in execution order. The result of the last one is the output."""

    steps: tuple[Step, ...]

    @property
    def title(self) -> str:
        """Names of the steps, such as 'Mul + Add'."""
        return " + ".join(step.op.title for step in self.steps)

    def _resolve(
        self, values: Sequence[Any], results: Sequence[Any], step: Step, number: Callable[[Number], Any]
    ) -> list[Any]:
        """Return what the inputs of `step` refer to; `number` converts constants."""

        def one(source: Source) -> Any:
            if isinstance(source, Number):
                return number(source)
            return None if source is None else values[source] if source >= 0 else results[-1 - source]

        return [one(source) for source in step.inputs]

    def types(self, inputs: Sequence[TensorType]) -> list[TensorType]:
        """Return the result type of every step."""
        results: list[TensorType] = []
        for step in self.steps:
            (y,) = step.op.infer(*self._resolve(inputs, results, step, lambda n: n.type))
            results.append(y)
        return results

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        return (self.types(inputs)[-1],)

    def evaluate_typed(self, types: tuple[ValueType | None, ...], *inputs: Array) -> tuple[Array, ...]:
        kinds = self.types(types)  # type: ignore[arg-type]
        results: list[Array] = []
        for step in self.steps:
            given = self._resolve(types, kinds, step, lambda n: n.type)
            values = self._resolve(inputs, results, step, lambda n: np.asarray(n.value, n.dtype.numpy))
            results += step.op.evaluate_typed(tuple(given), *values)
        return (results[-1],)

    def pointwise(self, inputs: Sequence[TensorType]) -> Pointwise | None:
        """Return the chain in WGSL for inputs of these types, or None if a step has no WGSL."""
        results = self.types(inputs)
        functions: list[str] = []
        lines: list[str] = []
        scalars: dict[str, float | int] = {}
        for number, step in enumerate(self.steps):
            kinds = self._resolve(inputs, results, step, lambda n: n.type)
            expression = step.op.expression(*(None if k is None else k.dtype for k in kinds))
            if expression is None:
                return None
            present = [(i, k) for i, k in zip(step.inputs, kinds, strict=True) if i is not None]
            if expression.code in COMMUTATIVE:
                present.sort(key=lambda given: _order(given[0]))  # the same source for both orders
            arguments = [f"{n}: {k.dtype.compute}" for n, (_, k) in zip(expression.names, present, strict=True)]
            values: list[str] = []
            for i, _ in present:
                if isinstance(i, Number):
                    values.append(f"s{number}_{len(values)}")
                    scalars[values[-1]] = i.value
                else:
                    values.append(f"in{i}" if i >= 0 else f"t{-1 - i}")
            for name, value in expression.scalars.items():
                arguments.append(f"{name}: {'i32' if isinstance(value, int) else 'f32'}")
                values.append(f"s{number}_{name}")
                scalars[f"s{number}_{name}"] = value
            result = results[number].dtype.compute
            code = expression.code if "return" in expression.code else f"return {expression.code};"
            functions.append(f"fn step{number}({', '.join(arguments)}) -> {result} {{ {code} }}")
            lines.append(f"let t{number} = step{number}({', '.join(values)});")
        lines.append(f"return t{len(self.steps) - 1};")
        used = tuple(sorted({i for s in self.steps for i in s.inputs if isinstance(i, int) and i >= 0}))
        return Pointwise("\n  ".join(lines), "\n\n".join(functions), results[-1], scalars, used)

    def lower(self, target: Target, *inputs: TensorType) -> tuple[Dispatch, ...]:
        chain = self.pointwise(inputs)
        if chain is None:
            raise Unsupported("a step of the chain has no WGSL for these types")
        operands = {f"in{i}": inp(i, inputs[i]) for i in chain.inputs}
        name = "_".join(s.op.op_type.lower() for s in self.steps[:4]) + ("_more" if len(self.steps) > 4 else "")
        return (
            elementwise(
                target, f"fused_{name}", operands, out(0, chain.result), chain.code, chain.scalars, chain.helpers
            ),
        )


def _order(source: Source) -> tuple[int, int]:
    """Sort key of inputs: results of steps, then inputs, then constants."""
    if not isinstance(source, int):
        return 2, 0
    return source >= 0, abs(source)


def fusible(dtype: DType) -> bool:
    """Whether intermediate values of this type need no rounding or wrapping between steps."""
    return (dtype.bits >= 32 and bool(dtype.compute)) or dtype in (DType.FLOAT16, DType.BFLOAT16, DType.BOOL)

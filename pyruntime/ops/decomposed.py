"""Operators defined as a composition of other operators: FusedConv is Conv, Add and an activation.

A subclass defines one method, which writes the equivalent nodes:

    class BiasGelu(Decomposed):
        def expand(self, body: Expansion, a: TensorType, b: TensorType) -> tuple[TensorType | None, ...]:
            return (body("Gelu", body("Add", a, b)),)

Type inference (`compiler.typing`) replaces the operator by these nodes. So passes, kernels and placement see only the
latter, and subexpressions of weights are folded.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pyruntime.ir import Array, Constant, DType, Node, TensorType, ValueType, known
from pyruntime.ops.base import Op
from pyruntime.ops.interpreter import execute
from pyruntime.ops.registry import newest

__all__ = ["Decomposed", "Expansion", "SometimesDecomposed"]


class Expansion:
    """Builder of the nodes that replace an operator. Values are represented by their types.

    Attributes:
        inputs: types of the operator's inputs, which stand for the inputs' values.
        nodes: the nodes built so far; value names are local to the expansion.
        constants: constants of these nodes, by name.
    """

    def __init__(self, inputs: Sequence[ValueType | None]) -> None:
        self.nodes: list[Node] = []
        self.constants: dict[str, Constant] = {}
        self._names: dict[int, str] = {}
        self._kept: list[ValueType] = []  # keeps the keys of `_names` from being given to others
        self.inputs = tuple(None if x is None else self._named(x, f"in{i}") for i, x in enumerate(inputs))

    def __call__(self, op_type: str, *inputs: TensorType | None, **attributes: Any) -> TensorType:
        """Add a node with the newest version of ai.onnx operator `op_type` and return its first output."""
        made: TensorType = self.apply(newest(op_type, **attributes), *inputs)[0]
        return made

    def apply(self, op: Op, *inputs: TensorType | None) -> tuple[Any, ...]:
        """Add a node with operator `op` and return all its outputs. Raises what `op.infer` raises."""
        names = [self.name(x) for x in inputs]
        outputs: list[Any] = []
        for index, kind in enumerate(op.infer(*inputs)):
            outputs.append(self._named(kind, f"{len(self.nodes)}.{index}" if op.wants(index) else ""))
        made = tuple(self.name(y) for y in outputs)
        self.nodes.append(Node(op, tuple(names), made, op.op_type))
        return tuple(outputs)

    def constant(self, array: Array, dtype: DType) -> TensorType:
        """Add a constant."""
        name = f"constant{len(self.constants)}"
        data = self.constants[name] = Constant.from_array(array, dtype)
        made: TensorType = self._named(replace(data.type, source=data.numpy), name)
        return made

    def ints(self, *numbers: int) -> TensorType:
        """Add a constant int64 vector, such as a shape or a list of axes."""
        return self.constant(np.array(numbers, np.int64), DType.INT64)

    def number(self, value: float, dtype: DType) -> TensorType:
        """Add a constant scalar."""
        return self.constant(np.array(value, dtype.numpy), dtype)

    def cast(self, value: TensorType, dtype: DType) -> TensorType:
        """Return `value` converted to `dtype`; the value itself if it has that type."""
        return value if value.dtype is dtype else self("Cast", value, to=dtype.code)

    def name(self, value: ValueType | None) -> str:
        """Return the name of a value in `nodes`; "" for an absent one."""
        return "" if value is None else self._names[id(value)]

    def _named(self, kind: Any, name: str) -> Any:
        fresh = replace(kind)
        self._kept.append(fresh)
        self._names[id(fresh)] = name
        return fresh


class Decomposed(Op):
    """Base of operators that expand to other nodes. No output type may depend on a value computed in the expansion."""

    def expand(self, body: Expansion, *inputs: Any) -> tuple[TensorType | None, ...]:
        """Write the equivalent nodes, and return the outputs (None for one that is not computed).

        Raises:
            InvalidGraph: the inputs do not fit.
            ValueNeeded: the value of an input is not known.
        """
        raise NotImplementedError(f"{self.op_type}.expand")

    def written(self, *inputs: ValueType | None) -> tuple[Expansion, tuple[TensorType | None, ...]]:
        """Return the expansion for inputs of these types, and its outputs."""
        body = Expansion(inputs)
        return body, self.expand(body, *body.inputs)

    def infer(self, *inputs: Any) -> tuple[ValueType, ...]:
        _, outputs = self.written(*inputs)
        return tuple(self._type(y) for y in outputs)

    @staticmethod
    def _type(y: TensorType | None) -> Any:
        return y and TensorType(y.dtype, y.shape)

    def evaluate_typed(self, types: tuple[ValueType | None, ...], *inputs: Any) -> tuple[Any, ...]:
        given = [t and known(t, x) for t, x in zip(types, inputs, strict=True)]
        body, outputs = self.written(*given)
        values: dict[str, ValueType | None] = {f"in{i}": x for i, x in enumerate(given)}
        for name, data in body.constants.items():
            values[name] = known(data.type, data.numpy())
        for node in body.nodes:
            made = execute(node.op, *(values[n] if n else None for n in node.inputs))  # type: ignore[arg-type]
            values.update((n, y) for n, y in zip(node.outputs, made, strict=False) if n)
        found = (values[name] if (name := body.name(y)) else None for y in outputs)
        return tuple(None if y is None else y.value() for y in found)

    @classmethod
    def has_kernel(cls) -> bool:
        return True

    def in_place_of(
        self, node: Node, types: Sequence[ValueType | None], taken: Container[str] = ()
    ) -> tuple[list[Node], dict[str, Constant]]:
        """The nodes that `node`, of this operator, stands for, on the graph's names; and their constants.

        `taken`: names that other values have: of two operators, one of which the other is written as, both may make
        the same output.
        """
        body, outputs = self.written(*types)
        label = next(filter(None, node.outputs), node.name)
        own = (*body.constants, *(n for made in body.nodes for n in made.outputs))
        while any(f"{label}/{name}" in taken for name in own):
            label += f"/{self.op_type}"
        names = {f"in{i}": n for i, n in enumerate(node.inputs)}
        copies: list[Node] = []
        for y, target in zip(outputs, node.outputs, strict=False):
            if not target or y is None:
                continue
            source = body.name(y)
            if source in names or source in body.constants:
                copies.append(Node(newest("Identity"), (names.get(source, f"{label}/{source}"),), (target,), label))
            else:
                names[source] = target

        def to(name: str) -> str:
            return names.get(name, f"{label}/{name}") if name else ""

        made = [
            Node(n.op, tuple(map(to, n.inputs)), tuple(map(to, n.outputs)), f"{node.name or label}/{n.name}")
            for n in body.nodes
        ]
        return [*made, *copies], {to(name): data for name, data in body.constants.items()}


class SometimesDecomposed(Op):
    """Base of operators with a kernel that are decomposed for some inputs."""

    def instead(self, *inputs: Any) -> Decomposed | None:
        """Return the operator to expand for inputs of these types, or None to keep this one."""
        raise NotImplementedError(f"{self.op_type}.instead")

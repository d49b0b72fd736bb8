"""Nodes of ONNX that compute values made of dynamic dimensions, from the shapes of a graph's inputs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from pyruntime.errors import InvalidArgument
from pyruntime.ir import Array, Constant, DType, Expression, Node, TypedGraph, expression, is_dim
from pyruntime.ops.registry import newest

__all__ = ["SizeNodes"]


class SizeNodes:
    """Writes arrays of ints and Dims as nodes.

    Args:
        graph: gives new names.
        axes: for each size of the graph's dynamic dimensions, an input that has it and where.

    Attributes:
        constants: what the nodes read, by name.
    """

    def __init__(self, graph: TypedGraph, axes: Sequence[tuple[str, int]]) -> None:
        self._graph, self._axes = graph, axes
        self._nodes: list[Node] = []
        self._known: dict[str, str] = {}
        self.constants: dict[str, Constant] = {}

    def nodes(self, name: str, array: Array, dtype: DType) -> list[Node]:
        """Return the nodes that compute `array` as the value `name`; what was written before is read.

        Raises:
            InvalidArgument: an element is a fraction of dynamic dimensions.
        """
        if name in self._known:
            return []
        self._known[name], self._nodes = name, []
        flat = [self._element(name, value) for value in array.reshape(-1)]
        made = self._node("Concat", *flat, axis=0)
        shaped = self._node("Reshape", made, self._constant(array.shape))
        self._nodes.append(Node(newest("Cast", to=dtype.code), (shaped,), (name,), name))
        return self._nodes

    def _element(self, name: str, value: Any) -> str:
        if not is_dim(value) and not isinstance(value, int | np.integer):
            raise InvalidArgument(f"value '{name}' is {value}, a fraction of dynamic dimensions; give their sizes")
        return self._sum(expression(value))

    def _sum(self, terms: Expression) -> str:
        """A tensor of one element: the value of a polynomial."""
        key = repr(terms)
        if key not in self._known:
            products = [reduce(self._times, map(self._atom, atoms), "") for _, atoms in terms]
            scaled = [
                self._times(p, self._constant([n])) if n != 1 or not p else p
                for (n, _), p in zip(terms, products, strict=True)
            ]
            self._known[key] = reduce(lambda a, b: self._node("Add", a, b), scaled)
        return self._known[key]

    def _times(self, a: str, b: str) -> str:
        return self._node("Mul", a, b) if a else b

    def _atom(self, atom: Any) -> str:
        """The value of a size, or of a quotient or remainder."""
        if isinstance(atom, int):
            key = f"size {atom}"
            if key not in self._known:
                name, axis = self._axes[atom]
                self._known[key] = self._node("Gather", self._node("Shape", name), self._constant([axis]))
            return self._known[key]
        operation, a, b = atom
        over, under = self._sum(a), self._sum(b if isinstance(b, list) else [[b, []]])
        rest = self._node("Mod", over, under)
        return rest if operation == "%" else self._node("Div", self._node("Sub", over, rest), under)

    def _node(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        name = self._graph.fresh(op_type.lower())
        self._nodes.append(Node(newest(op_type, **attributes), inputs, (name,), name))
        return name

    def _constant(self, numbers: Sequence[int]) -> str:
        name = self._graph.fresh("sizes")
        self.constants[name] = Constant.from_array(np.array(numbers, np.int64))
        return name

"""Express the results of nodes as polynomials of a body's inputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.ir import Node, TensorType, TypedGraph, is_dim
from pyruntime.passes.polynomials import NotPolynomial, Polynomial, add, leaf, multiply, number, summed

__all__ = ["Values"]


class Values:
    """Values of a body as polynomials of its inputs."""

    def __init__(self, body: TypedGraph) -> None:
        self._body = body
        self._known: dict[str, Polynomial] = {}

    def value(self, name: str) -> Polynomial:
        """Return a value as a polynomial. Raises NotPolynomial."""
        if name not in self._known:
            self._known[name] = self._made(name)
        return self._known[name]

    def _made(self, name: str) -> Polynomial:
        kind = self._body.tensor(name)
        if not kind.dtype.is_float:
            raise NotPolynomial
        if name in self._body.static and not is_dim(kind.size) and kind.size == 1:
            return number(float(np.asarray(kind.value(), np.float64).reshape(-1)[0]), kind.rank)
        node = self._body.producer(name)
        if node is None:
            return leaf(name, kind.shape)
        make = _MADE.get(node.op.op_type) if node.op.domain == "" else None
        if make is None:
            raise NotPolynomial
        made: Polynomial = make(self, node, kind)
        return made

    def inputs(self, node: Node) -> list[Polynomial]:
        """Return the inputs of a node as polynomials."""
        return [self.value(n) for n in node.inputs]

    def shape(self, node: Node, number: int = 0) -> tuple[Any, ...]:
        """Return the shape of input `number` of a node."""
        return self._body.tensor(node.inputs[number]).shape

    def product(self, node: Node, kind: TensorType) -> Polynomial:
        """Return the result of MatMul of matrices."""
        a, b = self.inputs(node)
        if min(len(a.dims), len(b.dims)) < 2:
            raise NotPolynomial
        wide = Polynomial((*a.dims, None), a.products)
        turned = Polynomial((*b.dims[:-2], None, *b.dims[-2:]), b.products)
        sizes = [1] * max(len(a.dims), len(b.dims)) + [1]
        sizes[-2] = self.shape(node)[-1]
        return summed(multiply(wide, turned), sizes, [len(sizes) - 2], False)

    def einsum(self, node: Node, kind: TensorType) -> Polynomial:
        """Return the result of Einsum."""
        op: Any = node.op
        shapes = [self.shape(node, i) for i in range(len(node.inputs))]
        equation = op.parse(*shapes)
        letters = list(equation.output) + [c for c in equation.dims if c not in equation.output]
        made = number(1.0, len(letters))
        for term, value in zip(equation.terms, self.inputs(node), strict=True):
            if len(set(term)) != len(term):
                raise NotPolynomial
            made = multiply(made, Polynomial(tuple(_at(term, c, value) for c in letters), value.products))
        sizes = [equation.dims[c] for c in letters]
        return summed(made, sizes, range(len(equation.output), len(letters)), False)

    def total(self, node: Node, kind: TensorType) -> Polynomial:
        """Return the result of ReduceSum."""
        op: Any = node.op
        x, *axes = (self._body.tensor(n) if n else None for n in node.inputs)
        over = op.axes_of(x, axes[0] if axes else None)
        return summed(self.value(node.inputs[0]), self.shape(node), over, bool(op.keepdims))

    def power(self, node: Node, kind: TensorType) -> Polynomial:
        """Return the result of Exp, a new leaf, for a single leaf times a constant."""
        x = self.value(node.inputs[0])
        if len(x.products) != 1 or len(x.products[0][1]) != 1:
            raise NotPolynomial
        factor, ((name, at),) = x.products[0]
        if not {i for i in at if i is not None} <= {*x.dims} or not isinstance(name, str):
            raise NotPolynomial
        return Polynomial(x.dims, ((1.0, ((("exp", factor, name), at),)),))


def _at(term: str, letter: str, value: Polynomial) -> int | None:
    return value.dims[term.index(letter)] if letter in term else None


_MADE: dict[str, Any] = {
    "Mul": lambda body, node, kind: multiply(*body.inputs(node)),
    "Add": lambda body, node, kind: add(*body.inputs(node)),
    "Sub": lambda body, node, kind: add(body.value(node.inputs[0]), body.value(node.inputs[1]), -1.0),
    "Neg": lambda body, node, kind: body.inputs(node)[0].scaled(-1.0),
    "Identity": lambda body, node, kind: body.inputs(node)[0],
    "Cast": lambda body, node, kind: body.inputs(node)[0],
    "Exp": Values.power,
    "MatMul": Values.product,
    "Einsum": Values.einsum,
    "ReduceSum": Values.total,
    "Transpose": lambda body, node, kind: body.inputs(node)[0].permuted(
        node.op.perm or tuple(reversed(range(kind.rank)))
    ),
    **dict.fromkeys(
        ("Reshape", "Squeeze", "Unsqueeze", "Flatten"),
        lambda body, node, kind: body.value(node.inputs[0]).reshaped(body.shape(node), kind.shape),
    ),
}

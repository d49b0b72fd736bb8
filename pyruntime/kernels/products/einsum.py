"""Contractions of labelled tensors: pairs in turn, each as a matrix product where its layout allows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyruntime.ir import DType
from pyruntime.kernels.ir.dispatch import Dispatch, Operand, scratch
from pyruntime.kernels.ir.indexing import collapse, contiguous
from pyruntime.kernels.movement import strided_copy
from pyruntime.kernels.products.contract import Factor, contract
from pyruntime.kernels.products.matmul import MAX_BATCH_RANK, Product, matmul
from pyruntime.target import Target

__all__ = ["contract_all"]

SMALL = 1 << 20
"""Multiplications below which one simple dispatch is worth more than reordering operands for a matrix product."""


@dataclass(frozen=True, slots=True)
class _Term:
    """A tensor with a stride for each of its labels; a repeated label walks the diagonal, size 1 broadcasts."""

    operand: Operand
    strides: tuple[tuple[str, int], ...]

    @property
    def labels(self) -> frozenset[str]:
        return frozenset(label for label, _ in self.strides)

    def stride(self, label: str) -> int:
        return dict(self.strides).get(label, 0)

    def along(self, labels: Sequence[str]) -> tuple[int, ...]:
        """Strides along `labels`; 0 where the tensor does not have one."""
        known = dict(self.strides)
        return tuple(known.get(label, 0) for label in labels)


def _term(operand: Operand, labels: str, dims: Mapping[str, int]) -> _Term:
    strides: dict[str, int] = {}
    for label, dim, step in zip(labels, operand.type.shape, contiguous(operand.type.shape), strict=True):
        broadcast = dim == 1 and dims[label] != 1
        strides[label] = strides.get(label, 0) + (0 if broadcast else step)
    return _Term(operand, tuple(strides.items()))


def contract_all(
    target: Target, y: Operand, terms: Sequence[tuple[Operand, str]], output: str, dims: Mapping[str, int]
) -> tuple[Dispatch, ...]:
    """y[output] = sum over all other labels of the product of the terms.

    Raises:
        ValueError: more dimensions than the kernels can index.
    """
    builder = _Builder(target, dims)
    pending = [_term(operand, labels, dims) for operand, labels in terms]
    while len(pending) > 2:
        i, j = builder.cheapest(pending, output)
        second, first = pending.pop(j), pending.pop(i)
        needed = frozenset(output).union(*(t.labels for t in pending))
        kept = [label for label in dims if label in needed and label in first.labels | second.labels]
        middle = scratch(_sum_type(y.type.dtype), *(dims[label] for label in kept))
        builder.pair(middle, first, second, kept)
        pending.append(_term(middle, "".join(kept), dims))
    if len(pending) == 2:
        builder.pair(y, pending[0], pending[1], list(output))
    else:
        builder.general(y, pending, list(output))
    return tuple(builder.made)


class _Builder:
    """Collects the dispatches of one contraction."""

    def __init__(self, target: Target, dims: Mapping[str, int]) -> None:
        self.target = target
        self.dims = dims
        self.made: list[Dispatch] = []

    def size(self, labels: Sequence[str] | frozenset[str]) -> int:
        """Return the number of elements of a tensor with these labels."""
        return math.prod(self.dims[label] for label in labels)

    def cheapest(self, terms: Sequence[_Term], output: str) -> tuple[int, int]:
        """The pair whose contraction takes the fewest multiplications, then leaves the fewest elements."""

        def cost(pair: tuple[int, int]) -> tuple[int, int]:
            both = terms[pair[0]].labels | terms[pair[1]].labels
            rest = frozenset(output).union(*(t.labels for n, t in enumerate(terms) if n not in pair))
            return self.size(both), self.size(both & rest)

        return min(((i, j) for i in range(len(terms)) for j in range(i + 1, len(terms))), key=cost)

    def general(self, y: Operand, terms: Sequence[_Term], output: Sequence[str]) -> None:
        """Add the dispatch that computes each result in one invocation: any equation, slowly."""
        everything = frozenset[str]().union(*(t.labels for t in terms))
        summed = [label for label in self.dims if label in everything and label not in output]
        factors = [Factor(t.operand, t.along(output), t.along(summed)) for t in terms]
        outer, inner = ([self.dims[label] for label in labels] for labels in (output, summed))
        self.made.append(contract(self.target, f"einsum{len(terms)}", y, factors, outer, inner))

    def pair(self, y: Operand, a: _Term, b: _Term, output: Sequence[str]) -> None:
        """Add the dispatches that contract two terms to `y`."""
        work = self.size(a.labels | b.labels)
        groups = _Groups.of(a, b, output)
        simple = work < SMALL and not self._direct(a, b, groups, output)
        if simple or y.type.dtype.bits not in (16, 32):
            self.general(y, (a, b), output)
            return
        a, b = self._summed(a, groups.only_a), self._summed(b, groups.only_b)
        self._product(y, a, b, groups, output)

    def _direct(self, a: _Term, b: _Term, groups: _Groups, output: Sequence[str]) -> bool:
        """True where a matrix product needs no reordering at all."""
        ordered = [*groups.batch, *groups.rows, *groups.cols]
        return (
            not groups.only_a
            and not groups.only_b
            and list(output) == ordered
            and self._matrix(a, groups.batch, groups.rows, groups.inner) is not None
            and self._matrix(b, groups.batch, groups.inner, groups.cols) is not None
        )

    def _summed(self, term: _Term, labels: Sequence[str]) -> _Term:
        """Sum a term over `labels`, which occur neither in the other term nor in the output; returns the sum."""
        if not labels:
            return term
        kept = [label for label, _ in term.strides if label not in labels]
        middle = scratch(_sum_type(term.operand.type.dtype), *(self.dims[label] for label in kept))
        self.general(middle, (term,), kept)
        return _term(middle, "".join(kept), self.dims)

    def _matrix(self, t: _Term, batch: Sequence[str], rows: Sequence[str], cols: Sequence[str]) -> bool | None:
        """Whether t is stored transposed as [rows, cols] matrices; None where it is no stack of matrices."""
        (r, (rs,)), (c, (cs,)) = (
            collapse([self.dims[label] for label in labels], t.along(labels)) for labels in (rows, cols)
        )
        stacked, _ = collapse([self.dims[label] for label in batch], t.along(batch))
        if len(r) != 1 or len(c) != 1 or len(stacked) > MAX_BATCH_RANK:
            return None
        m, n = r[0], c[0]
        if (n == 1 or cs[0] == 1) and (m == 1 or rs[0] == n):
            return False
        if (m == 1 or rs[0] == 1) and (n == 1 or cs[0] == m):
            return True
        return None

    def _ordered(self, t: _Term, labels: Sequence[str]) -> _Term:
        """`t` copied so that `labels` are its dimensions in order."""
        middle = scratch(t.operand.type.dtype, *(self.dims[label] for label in labels))
        self.made.append(strided_copy(self.target, "einsum_order", middle, t.operand, 0, t.along(labels)))
        return _term(middle, "".join(labels), self.dims)

    def _product(self, y: Operand, a: _Term, b: _Term, groups: _Groups, output: Sequence[str]) -> None:
        """A matrix product, with operands and result reordered where they must be."""
        batch, rows, cols, inner = groups.batch, groups.rows, groups.cols, groups.inner
        trans_a = self._matrix(a, batch, rows, inner)
        if trans_a is None:
            a, trans_a = self._ordered(a, [*batch, *rows, *inner]), False
        trans_b = self._matrix(b, batch, inner, cols)
        if trans_b is None:
            b, trans_b = self._ordered(b, [*batch, *inner, *cols]), False
        stack, (a_view, b_view) = collapse([self.dims[label] for label in batch], a.along(batch), b.along(batch))
        if len(stack) > MAX_BATCH_RANK:
            self.general(y, (a, b), output)
            return
        m, n, k = self.size(rows), self.size(cols), self.size(inner)
        product = Product(m, n, k, stack, a_view, b_view, trans_a, trans_b)
        ordered = [*batch, *rows, *cols]
        if list(output) == ordered:
            self.made += matmul(self.target, y, a.operand, b.operand, product)
            return
        middle = scratch(y.type.dtype, *(self.dims[label] for label in ordered))
        self.made += matmul(self.target, middle, a.operand, b.operand, product)
        result = _term(middle, "".join(ordered), self.dims)
        self.made.append(strided_copy(self.target, "einsum_order", y, middle, 0, result.along(output)))


@dataclass(frozen=True, slots=True)
class _Groups:
    """The labels of a pair by role: in both and kept, in one and kept, in both and summed, in one and summed."""

    batch: list[str]
    rows: list[str]
    cols: list[str]
    inner: list[str]
    only_a: list[str]
    only_b: list[str]

    @staticmethod
    def of(a: _Term, b: _Term, output: Sequence[str]) -> _Groups:
        """The roles for a result with labels `output`."""
        both = a.labels & b.labels
        summed = [label for label, _ in (*a.strides, *b.strides) if label not in output]
        return _Groups(
            [label for label in output if label in both],
            [label for label in output if label in a.labels - both],
            [label for label in output if label in b.labels - both],
            list(dict.fromkeys(label for label in summed if label in both)),
            [label for label in dict.fromkeys(summed) if label in a.labels - both],
            [label for label in dict.fromkeys(summed) if label in b.labels - both],
        )


def _sum_type(dtype: DType) -> DType:
    """The type partial sums are kept in: 16-bit floats are not rounded twice."""
    return DType.FLOAT if dtype.compute == "f32" else dtype

"""Tensors as sums of products of other tensors, to prove that nodes compute a formula regardless of how it is written.

An element of a tensor is a sum of products of elements of leaves, over all indices that are not dimensions of the
tensor. This covers matrix products, Einsum, broadcasting, ReduceSum, Transpose and similar. Two tensors are equal for
all values of the leaves if their sums have the same products.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, permutations
from typing import Any, TypeAlias

from pyruntime.ir import is_dim

__all__ = ["Atom", "NotPolynomial", "Polynomial", "add", "leaf", "multiply", "number", "same", "summed"]

MOST_PRODUCTS = 16
MOST_INDICES = 4
"""Maximum number of summation indices of a product."""

Atom: TypeAlias = tuple[Hashable, tuple[int | None, ...]]
"""A leaf, and the index of each of its dimensions; None: the dimension has size 1."""

Product: TypeAlias = tuple[float, tuple[Atom, ...]]
"""A factor, and the atoms it multiplies."""

_indices = count(1 << 10)
"""Indices of leaves; smaller ones are free for callers."""


class NotPolynomial(Exception):
    """A value is not a polynomial of leaves, or has too many products."""


@dataclass(frozen=True, slots=True)
class Polynomial:
    """A tensor. `dims`: index of each dimension; None: the dimension has size 1, or all elements along it are equal."""

    dims: tuple[int | None, ...]
    products: tuple[Product, ...]

    def renamed(self, names: Mapping[int, int]) -> Polynomial:
        """Return the tensor with indices replaced."""

        def to(index: int | None) -> int | None:
            return None if index is None else names.get(index, index)

        products = ((c, tuple((n, tuple(map(to, at))) for n, at in atoms)) for c, atoms in self.products)
        return Polynomial(tuple(map(to, self.dims)), tuple(products))

    def fresh(self) -> Polynomial:
        """Return the tensor with new, unique indices."""
        used = {i for _, atoms in self.products for _, at in atoms for i in at} | {*self.dims}
        return self.renamed({i: next(_indices) for i in used if i is not None})

    def scaled(self, factor: float) -> Polynomial:
        """Return the tensor times a number."""
        return Polynomial(self.dims, tuple((factor * c, atoms) for c, atoms in self.products))

    def permuted(self, perm: Sequence[int]) -> Polynomial:
        """Return the tensor with permuted dimensions."""
        return Polynomial(tuple(self.dims[p] for p in perm), self.products)

    def reshaped(self, before: Sequence[Any], after: Sequence[Any]) -> Polynomial:
        """Add or remove dimensions of size 1. Raises NotPolynomial for other reshapes."""
        kept = [(n, i) for n, i in zip(before, self.dims, strict=True) if not _is_one(n)]
        wide = [n for n in after if not _is_one(n)]
        if len(kept) != len(wide) or any(n is not m and n != m for (n, _), m in zip(kept, wide, strict=True)):
            raise NotPolynomial
        left = iter(kept)
        return Polynomial(tuple(None if _is_one(n) else next(left)[1] for n in after), self.products)

    def canonical(self) -> dict[Hashable, float]:
        """Return product -> factor in a canonical form: indices numbered by dimension, summation indices by order."""
        found: dict[Hashable, float] = {}
        places = {i: at for at, i in enumerate(self.dims) if i is not None}
        for factor, atoms in self.products:
            bound = list(dict.fromkeys(i for _, at in atoms for i in at if i is not None and i not in places))
            if len(bound) > MOST_INDICES:
                raise NotPolynomial
            forms = []
            for order in permutations(range(len(bound))):
                names = places | {i: -1 - n for i, n in zip(bound, order, strict=True)}
                forms.append(sorted((repr(n), [names[i] for i in at if i is not None]) for n, at in atoms))
            key = repr(min(forms))
            found[key] = found.get(key, 0.0) + factor
        return {key: factor for key, factor in found.items() if factor}


def _is_one(size: Any) -> bool:
    return not is_dim(size) and size == 1


def leaf(name: Hashable, shape: Iterable[Any]) -> Polynomial:
    """Return a tensor that is a leaf."""
    dims = tuple(None if _is_one(n) else next(_indices) for n in shape)
    return Polynomial(dims, ((1.0, ((name, dims),)),))


def number(value: float, rank: int) -> Polynomial:
    """Return a tensor of one element."""
    return Polynomial((None,) * rank, ((value, ()),))


def _aligned(a: Polynomial, b: Polynomial) -> tuple[tuple[int | None, ...], Polynomial]:
    """Return the dimensions of a and b broadcast to each other, and `b` with the indices of `a`."""
    b = b.fresh()
    rank = max(len(a.dims), len(b.dims))
    of_a, of_b = ((None,) * (rank - len(x.dims)) + x.dims for x in (a, b))
    names = {j: i for i, j in zip(of_a, of_b, strict=True) if i is not None and j is not None}
    return tuple(j if i is None else i for i, j in zip(of_a, of_b, strict=True)), b.renamed(names)


def multiply(a: Polynomial, b: Polynomial) -> Polynomial:
    """Return a * b with NumPy's broadcasting. Raises NotPolynomial for too many products."""
    dims, b = _aligned(a, b)
    if len(a.products) * len(b.products) > MOST_PRODUCTS:
        raise NotPolynomial
    return Polynomial(dims, tuple((c * d, (*p, *q)) for c, p in a.products for d, q in b.products))


def add(a: Polynomial, b: Polynomial, sign: float = 1.0) -> Polynomial:
    """Return a + sign * b with NumPy's broadcasting. Raises NotPolynomial for too many products."""
    dims, b = _aligned(a, b)
    if len(a.products) + len(b.products) > MOST_PRODUCTS:
        raise NotPolynomial
    return Polynomial(dims, (*a.products, *b.scaled(sign).products))


def summed(x: Polynomial, shape: Sequence[Any], axes: Iterable[int], keep: bool) -> Polynomial:
    """Return the sum over axes. Raises NotPolynomial if a product does not depend on a summed index."""
    axes = set(axes)
    for axis in axes:
        index = x.dims[axis]
        lacks = any(all(index not in at for _, at in atoms) for _, atoms in x.products)
        if (index is None and not _is_one(shape[axis])) or (index is not None and lacks):
            raise NotPolynomial
    dims = [None if d in axes else i for d, i in enumerate(x.dims) if keep or d not in axes]
    return Polynomial(tuple(dims), x.products)


def same(a: Polynomial, b: Polynomial) -> bool:
    """Whether two tensors of one shape are equal for all values of their leaves."""
    first, second = a.canonical(), b.canonical()
    if first.keys() != second.keys():
        return False
    return all(abs(first[k] - second[k]) <= 1e-6 * max(abs(first[k]), abs(second[k])) for k in first)

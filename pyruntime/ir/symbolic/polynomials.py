"""Polynomials with integer coefficients over named atoms: the arithmetic of `Dim`.

Only `Sizes` knows what an atom stands for. Terms are sorted and no coefficient is 0, so equal polynomials are equal
tuples.
"""

from __future__ import annotations

import math
from typing import TypeAlias

__all__ = ["Monomial", "Terms", "cancelled", "common_factor", "constant", "product", "quotient", "split", "sum_of"]

Monomial: TypeAlias = tuple[tuple[str, ...], int]
"""A coefficient, after its sorted atoms."""

Terms: TypeAlias = tuple[Monomial, ...]
"""A polynomial: sorted monomials; that of the constant has no atoms."""


def constant(value: int) -> Terms:
    return (((), value),) if value else ()


def sum_of(a: Terms, b: Terms, sign: int = 1) -> Terms:
    total = dict(a)
    for atoms, factor in b:
        total[atoms] = total.get(atoms, 0) + sign * factor
    return tuple(sorted((atoms, factor) for atoms, factor in total.items() if factor))


def product(a: Terms, b: Terms) -> Terms:
    total: dict[tuple[str, ...], int] = {}
    for left, f in a:
        for right, g in b:
            atoms = tuple(sorted((*left, *right)))
            total[atoms] = total.get(atoms, 0) + f * g
    return tuple(sorted((atoms, factor) for atoms, factor in total.items() if factor))


def common_factor(terms: Terms) -> Monomial:
    """Return the greatest common divisor of all terms: atoms, and a positive number."""
    common = list(terms[0][0]) if terms else []
    for atoms, _ in terms[1:]:
        rest, kept = list(atoms), []
        for atom in common:
            if atom in rest:
                rest.remove(atom)
                kept.append(atom)
        common = kept
    return tuple(common), math.gcd(*(factor for _, factor in terms)) or 1


def cancelled(a: Terms, b: Terms) -> tuple[Terms, Terms]:
    """Divide a and b by their common factor; a // b is unchanged."""
    divisor = (common_factor((*a, *b)),)
    x, y = quotient(a, divisor), quotient(b, divisor)
    return (a, b) if x is None or y is None else (x, y)


def quotient(a: Terms, b: Terms) -> Terms | None:
    """Return a / b if it is a polynomial with integer coefficients, else None."""
    if len(b) == 1:
        ((divisor, d),) = b
        made = []
        for atoms, factor in a:
            rest = list(atoms)
            for name in divisor:
                if name not in rest:
                    return None
                rest.remove(name)
            if factor % d:
                return None
            made.append((tuple(rest), factor // d))
        return tuple(sorted(made))
    return _long_quotient(a, b) if a and b else None


def _long_quotient(a: Terms, b: Terms) -> Terms | None:
    """Divide a by b by long division of leading terms; None where a remainder is left."""
    made: Terms = ()
    lead = max(b, key=_degree)
    while a:
        step = quotient((max(a, key=_degree),), (lead,))
        if not step:
            return None
        made, a = sum_of(made, step), sum_of(a, product(step, b), -1)
    return made


def _degree(term: Monomial) -> tuple[int, tuple[str, ...]]:
    """Sort key of monomials; multiplication preserves the order."""
    return len(term[0]), term[0]


def split(a: Terms, b: Terms) -> tuple[Terms, Terms]:
    """Return (whole, rest) with a = whole * b + rest, where `whole` has the terms of a that b divides."""
    whole: Terms = ()
    rest = []
    for term in a:
        divided = quotient((term,), b)
        if divided is None:
            rest.append(term)
        else:
            whole = sum_of(whole, divided)
    return whole, tuple(rest)

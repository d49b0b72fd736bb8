"""Polynomials with integer coefficients over named atoms: what a `Dim` computes with.

An atom is a name; what it stands for is known to `Sizes` alone. Terms are sorted and no coefficient is 0, so two
polynomials are the same one where they are equal as tuples.
"""

from __future__ import annotations

import math
from typing import TypeAlias

__all__ = ["Monomial", "Terms", "cancelled", "common_factor", "constant", "product", "quotient", "split", "sum_of"]

Monomial: TypeAlias = tuple[tuple[str, ...], int]
"""Atoms, sorted, and a coefficient."""

Terms: TypeAlias = tuple[Monomial, ...]
"""A polynomial: its monomials, sorted; the constant has no atoms."""


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
    """What divides every term: atoms, and a number above 0."""
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
    """a and b without what all terms of both have in common; a // b stays the same."""
    divisor = (common_factor((*a, *b)),)
    x, y = quotient(a, divisor), quotient(b, divisor)
    return (a, b) if x is None or y is None else (x, y)


def quotient(a: Terms, b: Terms) -> Terms | None:
    """a / b where b divides every term of a, or is a factor of it; else None."""
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
    """An order of monomials that products keep."""
    return len(term[0]), term[0]


def split(a: Terms, b: Terms) -> tuple[Terms, Terms]:
    """a = whole * b + rest, by the terms that b divides."""
    whole: Terms = ()
    rest = []
    for term in a:
        divided = quotient((term,), b)
        if divided is None:
            rest.append(term)
        else:
            whole = sum_of(whole, divided)
    return whole, tuple(rest)

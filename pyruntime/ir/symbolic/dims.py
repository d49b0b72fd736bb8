"""Dimensions that are known when a plan runs: a value seen, and an expression over the sizes that inputs bring.

A `Dim` stands in a shape where an int stood. Arithmetic keeps both sides: `2 * s + 1` is a Dim whose value is that of
the sizes seen (the hint) and whose expression holds for others. A comparison that the ranges of the sizes do not decide
answers by the hint and is remembered as a guard: what was planned holds for other sizes while every guard answers the
same. Code that needs a number (`int()`, `range()`, a hash) gets the hint, and the plan is specialised for that number.
So code that was written for ints is right with Dims, and as general as what it asks.

Expressions are polynomials (`polynomials`); the sizes in them, their ranges and the guards are a plan's `Sizes`
(`sizes`).

    upper(x)        the most x can be within the plan's ranges: for the choice of kernels and the size of memory
    multiple(x, n)  whether x is a multiple of n whatever the sizes are
    hint(x)         the number seen, for reports: nothing is remembered

Source: torch's SymInt (hints and guards); tract's symbols. An int subclass would lose its guards where C code reads it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeAlias, TypeGuard, cast

import numpy as np

from pyruntime.ir.symbolic.polynomials import Terms, cancelled, constant, product, quotient, split, sum_of

__all__ = [
    "NUMBERS_ALONE",
    "Asked",
    "Dim",
    "Expression",
    "divisor",
    "exact_quotient",
    "expression",
    "hint",
    "int_array",
    "is_dim",
    "lower",
    "multiple",
    "positive",
    "upper",
]


NUMBERS_ALONE = TypeError, AttributeError, ValueError
"""What NumPy raises where a function of numbers is called with Dims: bad operand, no such method, invalid data type."""


Expression: TypeAlias = list[Any]
"""A polynomial as data: [[coefficient, [atom, ...]], ...], an atom being a number of `Sizes.names` or [operation,
expression, int or expression]."""


class Asked(Protocol):
    """What a Dim asks of its plan's `Sizes`, which have the documentation."""

    def ask(self, terms: Terms, comparison: str, number: bool = False) -> bool: ...

    def operate(self, operation: str, a: Terms, b: Terms) -> Terms: ...

    def joined(self, a: Terms, b: Terms) -> tuple[Terms, Terms] | None: ...

    def value(self, terms: Terms) -> int: ...

    def range(self, terms: Terms) -> tuple[float, float]: ...

    def text(self, terms: Terms) -> str: ...

    def data(self, terms: Terms) -> Expression: ...


class Dim:
    """A dimension that other runs may bring in another size. Behaves as an int; see the module."""

    __slots__ = ("sizes", "terms")

    def __init__(self, sizes: Asked, terms: Terms) -> None:
        self.sizes, self.terms = sizes, terms

    def _made(self, terms: Terms) -> Any:
        """An int where no size is left."""
        if not terms:
            return 0
        return terms[0][1] if len(terms) == 1 and not terms[0][0] else Dim(self.sizes, terms)

    def _terms(self, other: object) -> Terms | None:
        if isinstance(other, Dim):
            return other.terms
        whole = isinstance(other, float | np.floating) and float(other).is_integer()
        return constant(int(cast(Any, other))) if whole or isinstance(other, int | np.integer) else None

    def _joined(self, other: object, join: Callable[[Terms, Terms], Terms], real: Callable[[Any, Any], Any]) -> Any:
        terms = self._terms(other)
        if terms is not None:
            return self._made(join(self.terms, terms))
        return real(int(self), other) if isinstance(other, float | np.floating) else NotImplemented

    def __add__(self, other: object) -> Any:
        return self._joined(other, sum_of, lambda a, b: a + b)

    def __sub__(self, other: object) -> Any:
        return self._joined(other, lambda a, b: sum_of(a, b, -1), lambda a, b: a - b)

    def __rsub__(self, other: object) -> Any:
        return self._joined(other, lambda a, b: sum_of(b, a, -1), lambda a, b: b - a)

    def __mul__(self, other: object) -> Any:
        return self._joined(other, product, lambda a, b: a * b)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Any:
        return self * -1

    def __floordiv__(self, other: object) -> Any:
        terms = self._terms(other)
        return NotImplemented if terms is None else self._divided(self.terms, terms)

    def __rfloordiv__(self, other: object) -> Any:
        terms = self._terms(other)
        return NotImplemented if terms is None else self._divided(terms, self.terms)

    def _divided(self, a: Terms, b: Terms) -> Any:
        if not b or self.sizes.ask(b, "=="):
            raise ZeroDivisionError(f"{self.sizes.text(a)} divided by {self.sizes.text(b)}")
        a, b = cancelled(a, b)
        exact = quotient(a, b)
        if exact is not None:
            return self._made(exact)
        whole, rest = split(a, b)
        nested = self.sizes.joined(rest, b)
        if nested is not None:
            return self._made(whole) + self._divided(*nested)
        return self._made(sum_of(whole, self.sizes.operate("//", rest, b)))

    def __mod__(self, other: object) -> Any:
        terms = self._terms(other)
        return NotImplemented if terms is None else self._remainder(self.terms, terms)

    def __rmod__(self, other: object) -> Any:
        terms = self._terms(other)
        return NotImplemented if terms is None else self._remainder(terms, self.terms)

    def _remainder(self, a: Terms, b: Terms) -> Any:
        if not b or self.sizes.ask(b, "=="):
            raise ZeroDivisionError(f"{self.sizes.text(a)} modulo {self.sizes.text(b)}")
        if quotient(a, b) is not None:
            return 0
        _, rest = split(a, b)
        return self._made(self.sizes.operate("%", rest, b))

    def __divmod__(self, other: object) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: object) -> Any:
        return other // self, other % self

    def __truediv__(self, other: object) -> Any:
        terms = self._terms(other)
        exact = quotient(self.terms, terms) if terms else None
        if exact is None:
            return int(self) / cast(Any, other)
        if is_dim(other) and not other:
            raise ZeroDivisionError(f"{self} divided by {other}")
        return self._made(exact)

    def __rtruediv__(self, other: Any) -> Any:
        return other / int(self)

    def __pow__(self, power: object) -> Any:
        if isinstance(power, int) and 0 <= power <= 4:
            return math.prod([self] * power)
        return int(self) ** cast(Any, power)

    def __rpow__(self, base: Any) -> Any:
        return base ** int(self)

    def __and__(self, other: Any) -> Any:
        return int(self) & int(other)

    def __or__(self, other: Any) -> Any:
        return int(self) | int(other)

    def __xor__(self, other: Any) -> Any:
        return int(self) ^ int(other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __rrshift__(self, number: Any) -> Any:
        return number >> int(self)

    def __rlshift__(self, number: Any) -> Any:
        return number << int(self)

    def __rshift__(self, bits: Any) -> Any:
        return self // (1 << bits)

    def __lshift__(self, bits: Any) -> Any:
        return self * (1 << bits)

    def __abs__(self) -> Any:
        return -self if self < 0 else self

    def __round__(self, digits: int | None = None) -> Any:
        return self

    def __pos__(self) -> Any:
        return self

    __floor__ = __ceil__ = __trunc__ = __pos__

    def _compare(self, other: object, comparison: str, swap: bool, negate: bool) -> Any:
        terms = self._terms(other)
        if terms is None:
            if isinstance(other, float | np.floating):
                return self._compare_real(float(other), comparison, swap, negate)
            return NotImplemented
        a, b = (terms, self.terms) if swap else (self.terms, terms)
        return self.sizes.ask(sum_of(a, b, -1), comparison) != negate

    def _compare_real(self, other: float, comparison: str, swap: bool, negate: bool) -> bool:
        """With a number that is no integer, or infinite."""
        if comparison == "==":
            return negate
        if math.isnan(other):
            return False
        if math.isinf(other):
            return ((other > 0) != swap) != negate
        # s < 2.5 is s < 3; 2.5 < s is 2 < s
        edge = math.floor(other) if swap else math.ceil(other)
        return bool(self._compare(edge, comparison, swap, negate))

    def __eq__(self, other: object) -> Any:
        return self._compare(other, "==", False, False)

    def __ne__(self, other: object) -> Any:
        return self._compare(other, "==", False, True)

    def __lt__(self, other: object) -> Any:
        return self._compare(other, "<", False, False)

    def __gt__(self, other: object) -> Any:
        return self._compare(other, "<", True, False)

    def __ge__(self, other: object) -> Any:
        return self._compare(other, "<", False, True)

    def __le__(self, other: object) -> Any:
        return self._compare(other, "<", True, True)

    def __bool__(self) -> bool:
        return not self.sizes.ask(self.terms, "==")

    def __index__(self) -> int:
        """The number seen; the plan holds for it alone."""
        value = self.sizes.value(self.terms)
        self.sizes.ask(sum_of(self.terms, constant(value), -1), "==", number=True)
        return value

    __int__ = __index__

    def __float__(self) -> float:
        return float(self.__index__())

    def __hash__(self) -> int:
        return hash(self.__index__())

    def __getattr__(self, name: str) -> Any:
        """What else an int has (bit_length, ...), of the number seen."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.__index__(), name)

    def __repr__(self) -> str:
        return re.sub(r"\b1\*", "", self.sizes.text(self.terms)[1:-1])

    def __format__(self, spec: str) -> str:
        return format(hint(self), spec) if spec else repr(self)


def is_dim(value: object) -> TypeGuard[Dim]:
    """True for a Dim: its number may be another one in other runs."""
    return isinstance(value, Dim)


def expression(value: Any) -> Expression:
    """An int or a Dim as data."""
    return value.sizes.data(value.terms) if isinstance(value, Dim) else [[int(value), []]]


def hint(value: Any) -> int:
    """The number seen. Nothing is remembered: for reports, not for decisions."""
    return value.sizes.value(value.terms) if isinstance(value, Dim) else int(value)


def upper(value: Any) -> int:
    """The most `value` can be within the plan's ranges; the number itself for an int."""
    if type(value) is int:
        return value
    if not isinstance(value, Dim):
        return int(value)
    high = value.sizes.range(value.terms)[1]
    return int(high) if math.isfinite(high) else int(value)


def lower(value: Any) -> int:
    """The least `value` can be within the plan's ranges; the number itself for an int."""
    if not isinstance(value, Dim):
        return int(value)
    low = value.sizes.range(value.terms)[0]
    return int(low) if math.isfinite(low) else int(value)


def divisor(value: Any) -> int:
    """The largest number known to divide `value` whatever the sizes are; the number itself for an int."""
    if not isinstance(value, Dim):
        return abs(int(value))
    return math.gcd(*(factor for _, factor in value.terms))


def exact_quotient(value: Any, by: Any) -> Any:
    """value / by where that is a whole number whatever the sizes are; else None. Nothing is remembered."""
    if not isinstance(value, Dim) and not isinstance(by, Dim):
        return value // by if by and value % by == 0 else None
    sizes = value.sizes if isinstance(value, Dim) else by.sizes
    a, b = (v.terms if isinstance(v, Dim) else constant(int(v)) for v in (value, by))
    exact = quotient(a, b) if b else None
    return None if exact is None else Dim(sizes, a)._made(exact)


def positive(value: Any) -> Any:
    """max(1, value), without asking where `value` is at least 1 whatever the sizes are."""
    return value if lower(value) >= 1 else max(1, value)


def multiple(value: Any, of: int) -> bool:
    """True where `value` is a multiple of `of` whatever the sizes are. Nothing is remembered."""
    return divisor(value) % of == 0


def int_array(values: Iterable[Any] | Any) -> np.ndarray[Any, Any]:
    """An int64 array; of Python objects where there are Dims among the values."""
    if isinstance(values, Dim):
        return np.array(values, dtype=object)
    items = list(values) if isinstance(values, Iterable) else values
    if isinstance(items, list) and any(isinstance(v, Dim) for v in items):
        made = np.empty(len(items), dtype=object)
        made[:] = items
        return made
    return np.array(items, np.int64)

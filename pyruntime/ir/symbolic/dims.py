"""Dynamic dimensions: an example value, and an expression over the sizes of a run's inputs.

A `Dim` takes the place of an int in a shape. Arithmetic keeps both parts: `2 * s + 1` is a Dim whose value follows from
the sizes seen (the hint) and whose expression holds for all others. A comparison that the ranges of the sizes do not
decide is answered by the hint and recorded as a guard: a plan is valid for other sizes as long as every guard has the
same answer. Code that needs a number (`int()`, `range()`, a hash) gets the hint, and the plan is specialized for it. So
code written for ints is correct with Dims, and restricts a plan only as far as it compares or converts.

Expressions are polynomials (`polynomials`); their sizes, the ranges and the guards are a plan's `Sizes` (`sizes`).

    upper(x)        upper bound of x within the plan's ranges: for kernel selection and memory sizes
    multiple(x, n)  whether x is a multiple of n for all sizes
    hint(x)         the example value, for reports: records no guard

Source: torch's SymInt (hints and guards); tract's symbols. A subclass of int would bypass guards in C code.
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
"""Exceptions that NumPy raises where a function of numbers gets Dims."""


Expression: TypeAlias = list[Any]
"""A polynomial as data: [[coefficient, [atom, ...]], ...], where an atom is an index in `Sizes.names` or [operation,
expression, int or expression].
"""


class Asked(Protocol):
    """The methods of a plan's `Sizes` that a Dim uses; documented there."""

    def ask(self, terms: Terms, comparison: str, number: bool = False) -> bool: ...

    def operate(self, operation: str, a: Terms, b: Terms) -> Terms: ...

    def joined(self, a: Terms, b: Terms) -> tuple[Terms, Terms] | None: ...

    def value(self, terms: Terms) -> int: ...

    def range(self, terms: Terms) -> tuple[float, float]: ...

    def text(self, terms: Terms) -> str: ...

    def data(self, terms: Terms) -> Expression: ...


class Dim:
    """A dimension whose size may differ from run to run. Behaves as an int; see the module."""

    __slots__ = ("sizes", "terms")

    def __init__(self, sizes: Asked, terms: Terms) -> None:
        self.sizes, self.terms = sizes, terms

    def _made(self, terms: Terms) -> Any:
        """Return a Dim with these terms, or an int where they contain no size."""
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
        """Compare with a float that is no integer, or infinite."""
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
        """Return the hint; the plan becomes specialized for it."""
        value = self.sizes.value(self.terms)
        self.sizes.ask(sum_of(self.terms, constant(value), -1), "==", number=True)
        return value

    __int__ = __index__

    def __float__(self) -> float:
        return float(self.__index__())

    def __hash__(self) -> int:
        return hash(self.__index__())

    def __getattr__(self, name: str) -> Any:
        """Return other attributes of int (bit_length, ...), of the hint."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.__index__(), name)

    def __repr__(self) -> str:
        return re.sub(r"\b1\*", "", self.sizes.text(self.terms)[1:-1])

    def __format__(self, spec: str) -> str:
        return format(hint(self), spec) if spec else repr(self)


def is_dim(value: object) -> TypeGuard[Dim]:
    """Return whether a value is a Dim."""
    return isinstance(value, Dim)


def expression(value: Any) -> Expression:
    """Return an int or a Dim as data."""
    return value.sizes.data(value.terms) if isinstance(value, Dim) else [[int(value), []]]


def hint(value: Any) -> int:
    """Return the example value, for reports rather than decisions: no guard is recorded."""
    return value.sizes.value(value.terms) if isinstance(value, Dim) else int(value)


def upper(value: Any) -> int:
    """Return an upper bound of `value` within the plan's ranges; an int itself."""
    if type(value) is int:
        return value
    if not isinstance(value, Dim):
        return int(value)
    high = value.sizes.range(value.terms)[1]
    return int(high) if math.isfinite(high) else int(value)


def lower(value: Any) -> int:
    """Return a lower bound of `value` within the plan's ranges; an int itself."""
    if not isinstance(value, Dim):
        return int(value)
    low = value.sizes.range(value.terms)[0]
    return int(low) if math.isfinite(low) else int(value)


def divisor(value: Any) -> int:
    """Return the largest known divisor of `value` for all sizes; the absolute value of an int."""
    if not isinstance(value, Dim):
        return abs(int(value))
    return math.gcd(*(factor for _, factor in value.terms))


def exact_quotient(value: Any, by: Any) -> Any:
    """Return value / by if it is an integer for all sizes; else None. Records no guard."""
    if not isinstance(value, Dim) and not isinstance(by, Dim):
        return value // by if by and value % by == 0 else None
    sizes = value.sizes if isinstance(value, Dim) else by.sizes
    a, b = (v.terms if isinstance(v, Dim) else constant(int(v)) for v in (value, by))
    exact = quotient(a, b) if b else None
    return None if exact is None else Dim(sizes, a)._made(exact)


def positive(value: Any) -> Any:
    """Return max(1, value); records no guard where `value` is at least 1 for all sizes."""
    return value if lower(value) >= 1 else max(1, value)


def multiple(value: Any, of: int) -> bool:
    """Return whether `value` is a multiple of `of` for all sizes. Records no guard."""
    return divisor(value) % of == 0


def int_array(values: Iterable[Any] | Any) -> np.ndarray[Any, Any]:
    """Return an int64 array, or an array of objects where the values contain Dims."""
    if isinstance(values, Dim):
        return np.array(values, dtype=object)
    items = list(values) if isinstance(values, Iterable) else values
    if isinstance(items, list) and any(isinstance(v, Dim) for v in items):
        made = np.empty(len(items), dtype=object)
        made[:] = items
        return made
    return np.array(items, np.int64)

"""Exact quotients n / d of dynamic dimensions in float shape arithmetic, so that ceil(h / 2) stays symbolic.

Exporters write floor(h * 0.5) and ceil(h / 2) of a size h as Cast, Mul or Div, Floor or Ceil, Cast. A `Real` is the
element of such a float tensor for a dynamic dimension h. It gives the results of float32 arithmetic, or specializes the
plan for the hint of h. Products and sums are exact for denominators that are powers of two and values below 2^24. Any
other quotient may only be rounded to an integer, which a single rounding to float32 does not change.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from pyruntime.ir.symbolic.dims import exact_quotient, is_dim, lower, upper

__all__ = ["Real", "is_real", "real_of"]

EXACT = 1 << 24
"""float32 represents all integers below this one."""

FINEST = 1 << 10
"""Largest denominator of a factor or a summand."""


def is_real(value: object) -> bool:
    """Return whether a value is a Real."""
    return isinstance(value, Real)


def real_of(size: Any) -> Any:
    """Return a size as an element of a float tensor: a Real for a Dim, else a float."""
    return _made(size, 1) if is_dim(size) else float(size)


def _made(over: Any, under: int) -> Any:
    """Return over / under: a float where `over` is a number, or a dimension too large for float32."""
    if is_dim(over) and max(abs(lower(over)), abs(upper(over))) < EXACT:
        return Real(over, under)
    return float(over) / under


class Real:
    """The quotient over / under of a Dim and a positive int."""

    __slots__ = ("over", "under")

    def __init__(self, over: Any, under: int) -> None:
        self.over, self.under = over, under

    @property
    def is_exact(self) -> bool:
        """True where float32 represents the quotient exactly."""
        return self.under & (self.under - 1) == 0

    def _with(self, other: Any, exact: Callable[[Any, int], Any], real: Callable[[float, float], Any]) -> Any:
        """Return `exact` of the other operand's fraction where float32 is exact for both; else `real` of the hints."""
        fraction = _fraction(other)
        if fraction is None:
            return NotImplemented
        over, under = fraction
        if self.is_exact and under & (under - 1) == 0 and under <= FINEST:
            return exact(over, under)
        return real(float(self), float(other))

    def __add__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: _made(self.over * b + a * self.under, self.under * b), lambda x, y: x + y)

    def __sub__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: _made(self.over * b - a * self.under, self.under * b), lambda x, y: x - y)

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __mul__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: _made(self.over * a, self.under * b), lambda x, y: x * y)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Any:
        return Real(-self.over, self.under)

    def __pos__(self) -> Any:
        return self

    def __truediv__(self, other: Any) -> Any:
        fraction = _fraction(other)
        if fraction is None:
            return NotImplemented
        a, b = fraction
        if self.is_exact and not is_dim(a) and b == 1 and a > 0:
            return _made(self.over, self.under * a)
        if is_dim(a):
            whole = exact_quotient(self.over * b, a * self.under)
            return float(self) / float(other) if whole is None else real_of(whole)
        return float(self) / float(other)

    def __rtruediv__(self, other: Any) -> Any:
        return other / float(self)

    def __floordiv__(self, other: Any) -> Any:
        return math.floor(self / other)

    def __pow__(self, power: Any) -> Any:
        return float(self) ** power

    def __floor__(self) -> Any:
        return _made(self.over // self.under, 1)

    def __ceil__(self) -> Any:
        return _made(-(-self.over // self.under), 1)

    def __trunc__(self) -> Any:
        return self.__floor__() if self.over >= 0 else self.__ceil__()

    def whole(self) -> Any:
        """Return the value truncated to an integer, as Cast does."""
        made = self.__trunc__()
        return made.over if isinstance(made, Real) else int(made)

    def __abs__(self) -> Any:
        return -self if self < 0 else self

    def _compare(self, other: Any, compare: Callable[[Any, Any], Any]) -> Any:
        fraction = _fraction(other)
        if fraction is None:
            return compare(float(self), other) if isinstance(other, float) else NotImplemented
        over, under = fraction
        return compare(self.over * under, over * self.under)

    def __eq__(self, other: object) -> Any:
        return self._compare(other, lambda a, b: a == b)

    def __ne__(self, other: object) -> Any:
        return self._compare(other, lambda a, b: a != b)

    def __lt__(self, other: Any) -> Any:
        return self._compare(other, lambda a, b: a < b)

    def __le__(self, other: Any) -> Any:
        return self._compare(other, lambda a, b: a <= b)

    def __gt__(self, other: Any) -> Any:
        return self._compare(other, lambda a, b: a > b)

    def __ge__(self, other: Any) -> Any:
        return self._compare(other, lambda a, b: a >= b)

    def __bool__(self) -> bool:
        return bool(self.over != 0)

    def __float__(self) -> float:
        return float(self.over) / self.under

    def __int__(self) -> int:
        return int(float(self))

    def __hash__(self) -> int:
        return hash(float(self))

    def __repr__(self) -> str:
        return f"({self.over}) / {self.under}"


def _fraction(value: Any) -> tuple[Any, int] | None:
    """Return (over, under) of a number, a Dim or a Real; None for other values and non-finite numbers."""
    if isinstance(value, Real):
        return value.over, value.under
    if is_dim(value):
        return value, 1
    try:
        exact = Fraction(float(value))
    except (TypeError, ValueError, OverflowError):
        return None
    return exact.numerator, exact.denominator

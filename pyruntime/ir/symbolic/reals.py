"""Exact quotients n / d of dynamic dimensions in shape arithmetic of floats, so that ceil(h / 2) stays symbolic.

Exporters write floor(h * 0.5) and ceil(h / 2) of a size h as Cast, Mul or Div, Floor or Ceil, Cast. A `Real` is what
such float tensors hold for a dynamic dimension h. It gives what float32 would give, or specialises the plan for the
hint of h. Products and sums are exact where denominators are powers of two and numbers are below 2^24. Any other
quotient is only rounded to a whole number, which its one rounding to float32 does not change.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from pyruntime.ir.symbolic.dims import exact_quotient, is_dim, lower, upper

__all__ = ["Real", "is_real", "real_of"]

EXACT = 1 << 24
"""Whole numbers below are float32 numbers."""

FINEST = 1 << 10
"""The largest denominator of a factor or a summand."""


def is_real(value: object) -> bool:
    """True for a Real."""
    return isinstance(value, Real)


def real_of(size: Any) -> Any:
    """A size as an element of a float tensor."""
    return _made(size, 1) if is_dim(size) else float(size)


def _made(over: Any, under: int) -> Any:
    """over / under; a float where `over` is a number, or a dimension that float32 does not hold."""
    if is_dim(over) and max(abs(lower(over)), abs(upper(over))) < EXACT:
        return Real(over, under)
    return float(over) / under


class Real:
    """over / under: a Dim, and a number above 0."""

    __slots__ = ("over", "under")

    def __init__(self, over: Any, under: int) -> None:
        self.over, self.under = over, under

    @property
    def is_exact(self) -> bool:
        """True where float32 holds it."""
        return self.under & (self.under - 1) == 0

    def _with(self, other: Any, exact: Callable[[Any, int], Any], real: Callable[[float, float], Any]) -> Any:
        """`exact` of another fraction, where float32 computes exactly with both; else `real` of the numbers seen."""
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
        """The integer that a cast makes of it: towards 0."""
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
    """(over, under) of a number, a Dim or a Real; None for what is none, or not finite."""
    if isinstance(value, Real):
        return value.over, value.under
    if is_dim(value):
        return value, 1
    try:
        exact = Fraction(float(value))
    except (TypeError, ValueError, OverflowError):
        return None
    return exact.numerator, exact.denominator

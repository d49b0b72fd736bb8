"""Dimensions that are known when a plan runs: a value seen, and an expression over the sizes that inputs bring.

A `Dim` stands in a shape where an int stood. Arithmetic keeps both sides: `2 * s + 1` is a Dim whose value is that of
the sizes seen (the hint) and whose expression holds for others. A comparison that the ranges of the sizes do not decide
answers by the hint and is remembered as a guard: what was planned holds for other sizes while every guard answers the
same. Whoever asks for a number (`int()`, `range()`, a hash) gets the hint, and the plan holds for that number alone: it
is specialised. So code that was written for ints is right with Dims, and as general as what it asks.

Expressions are polynomials with integer coefficients; what is none (`//`, `%`) is an atom of its own.

    upper(x)        the most x can be within the plan's ranges: for the choice of kernels and the size of memory
    multiple(x, n)  whether x is a multiple of n whatever the sizes are
    hint(x)         the number seen, for reports: nothing is remembered

Source: torch's SymInt (hints and guards); tract's symbols. An int subclass would lose its guards where C code reads it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias, TypeGuard, cast

import numpy as np

__all__ = [
    "Dim",
    "Expression",
    "Guard",
    "Sizes",
    "divisor",
    "evaluate",
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

Terms: TypeAlias = tuple[tuple[tuple[str, ...], int], ...]
"""A polynomial: (atoms of a monomial, coefficient), sorted; the constant has no atoms."""

Expression: TypeAlias = list[Any]
"""As data: [[coefficient, [atom, ...]], ...], an atom being a number of `Sizes.names` or [operation, expression, int or
expression]."""

_OPERATIONS: dict[str, Callable[[int, int], int]] = {"//": lambda a, b: a // b, "%": lambda a, b: a % b}
_COMPARISONS: dict[str, Callable[[int], bool]] = {"<": lambda d: d < 0, "==": lambda d: d == 0}


@dataclass(frozen=True, slots=True)
class _Atom:
    """A size, or an operation on two expressions: its value now and the range of its values."""

    value: int
    low: float
    high: float
    operation: str = ""
    parts: tuple[Terms, ...] = ()


@dataclass(frozen=True, slots=True)
class Guard:
    """`terms` compared with 0, and what it answered.

    Attributes:
        by: the node that was looked at, for reports.
        number: true where somebody asked for the number itself.
    """

    terms: Terms
    comparison: str
    answer: bool
    by: str
    number: bool


@dataclass(slots=True)
class Sizes:
    """The sizes that one plan leaves open, and what it relies on.

    Attributes:
        names: of the sizes, in order; expressions call them s0, s1, ...
        ranges: (lowest, highest) of each.
        grows: sizes that grow from run to run.
        values: sizes that are the one element of an input, by its name; the others are dimensions, or follow.
        by: what is being planned, named in guards.
    """

    names: list[str] = field(default_factory=list)
    ranges: list[tuple[int, int]] = field(default_factory=list)
    grows: list[bool] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    by: str = ""
    guards: dict[tuple[Terms, str], Guard] = field(default_factory=dict)
    _atoms: dict[str, _Atom] = field(default_factory=dict)
    _check: Callable[..., bool] | None = None

    def add(self, name: str, value: int, low: int, high: int, grows: bool = False) -> Any:
        """A size seen as `value`, anything from `low` to `high` in other runs."""
        atom = f"s{len(self.names)}"
        self.names.append(name)
        self.ranges.append((low, high))
        self.grows.append(grows)
        self._atoms[atom] = _Atom(value, low, high)
        return Dim(self, (((atom,), 1),))

    def index(self, size: Any) -> int:
        """The number of a Dim that is one of the sizes itself."""
        (((atom,), _),) = size.terms
        return int(atom[1:])

    def hold(self, values: Sequence[int]) -> bool:
        """True where these sizes are within the ranges and every guard answers as it did."""
        if self._check is None:
            tests = [f"{low} <= s{i} <= {high}" for i, (low, high) in enumerate(self.ranges)]
            for guard in self.guards.values():
                test = f"{self.text(guard.terms)} {guard.comparison} 0"
                tests.append(test if guard.answer else f"not {test}")
            arguments = ", ".join(f"s{i}" for i in range(len(self.names)))
            self._check = eval(f"lambda {arguments}: {' and '.join(tests) or True}", {})
        return self._check(*values)

    def specialized(self, by_chance: bool = True) -> dict[str, str]:
        """Sizes whose very number the plan relies on, and who asked for it.

        Args:
            by_chance: those too that were compared with a number and happened to be it.
        """
        asked: dict[str, str] = {}
        for guard in self.guards.values():
            plain = [atoms for atoms, _ in guard.terms if atoms]
            pinned = len(plain) == 1 and len(plain[0]) == 1 and not self._atoms[plain[0][0]].operation
            if guard.number or (by_chance and guard.comparison == "==" and guard.answer and pinned):
                for atom in _symbols(self, guard.terms):
                    asked.setdefault(self.names[int(atom[1:])], guard.by)
        return asked

    def pinned_by(self, call: Callable[[], object]) -> bool:
        """True where `call` fails or asks for a number; what it asks is not remembered."""
        before = dict(self.guards)
        try:
            call()
            return any(g.number and not (k in before and before[k].number) for k, g in self.guards.items())
        except Exception:
            return True
        finally:
            self.guards, self._check = before, None

    def text(self, terms: Terms) -> str:
        """Python source of a polynomial."""
        parts = ["*".join((str(factor), *atoms)) for atoms, factor in terms]
        return f"({' + '.join(parts) or '0'})"

    def ask(self, terms: Terms, comparison: str, number: bool = False) -> bool:
        """The answer of a comparison with 0, remembered where the ranges leave it open."""
        terms = self._reduced(terms)
        low, high = self._tight(terms)
        if comparison == "<" and (high < 0 or low >= 0):
            return high < 0
        if comparison == "==" and (low > 0 or high < 0):
            return False
        if low == high:
            return low == 0
        answer = _COMPARISONS[comparison](self.value(terms))
        known = self.guards.get((terms, comparison))
        if known is None or (number and not known.number):
            self.guards[terms, comparison] = Guard(terms, comparison, answer, self.by, number)
            self._check = None
        return answer

    def _tight(self, terms: Terms) -> tuple[float, float]:
        """`range`, with a // n taken as a / n less something below 1: what depends on one size then cancels out."""
        low, high = self.range(terms)
        total: dict[tuple[str, ...], Fraction] = {}
        slack = [Fraction(0), Fraction(0)]
        for atoms, factor in terms:
            atom = self._atoms[atoms[0]] if len(atoms) == 1 else None
            divisor = atom.parts[1] if atom and atom.operation == "//" else ()
            if atom is None or len(divisor) != 1 or divisor[0][0]:
                total[atoms] = total.get(atoms, Fraction(0)) + factor
                continue
            n = divisor[0][1]
            for inner, f in atom.parts[0]:
                total[inner] = total.get(inner, Fraction(0)) + Fraction(factor * f, n)
            error = Fraction(-factor * (n - 1), n)
            slack = [slack[0] + min(error, Fraction(0)), slack[1] + max(error, Fraction(0))]
        if not any(slack):
            return low, high
        bounds = self.range(tuple((atoms, f) for atoms, f in total.items() if f))  # type: ignore[misc]
        # The value is an integer: what floats round is nothing to bounds that are rounded to the integers within.
        return max(low, _inward(bounds[0] + float(slack[0]), math.ceil, -1)), min(
            high, _inward(bounds[1] + float(slack[1]), math.floor, 1)
        )

    def _reduced(self, terms: Terms) -> Terms:
        """The terms without what all of them have in common and is above 0: the comparison with 0 stays the same."""
        common = list(terms[0][0]) if len(terms) > 1 else []
        for atoms, _ in terms[1:]:
            rest = list(atoms)
            common = [a for a in common if a in rest and not rest.remove(a)]  # type: ignore[func-returns-value]
        common = [a for a in common if self._atoms[a].low > 0]
        factor = math.gcd(*(f for _, f in terms)) or 1
        if not common and factor == 1:
            return terms
        made = []
        for atoms, f in terms:
            rest = list(atoms)
            for a in common:
                rest.remove(a)
            made.append((tuple(rest), f // factor))
        return tuple(sorted(made))

    def value(self, terms: Terms) -> int:
        """The number seen."""
        return sum(factor * math.prod(self._atoms[a].value for a in atoms) for atoms, factor in terms)

    def range(self, terms: Terms) -> tuple[float, float]:
        """The lowest and the highest value within the ranges of the sizes, or further out."""
        low = high = 0.0
        for atoms, factor in terms:
            ends = [float(factor)]
            for name in atoms:
                atom = self._atoms[name]
                ends = [_times(end, limit) for end in ends for limit in (atom.low, atom.high)]
            low, high = low + min(ends), high + max(ends)
        return low, high

    def operate(self, operation: str, a: Terms, b: Terms) -> Terms:
        """An atom for what is no polynomial; the number itself where no size is left."""
        if not any(atoms for atoms, _ in (*a, *b)):
            return _number(_OPERATIONS[operation](self.value(a), self.value(b)))
        name = f"({self.text(a)} {operation} {self.text(b)})"
        if name not in self._atoms:
            (low, high), (least, most) = self.range(a), self.range(b)
            ends = (-math.inf, math.inf)
            if operation == "%" and least > 0:
                ends = (0, most - 1)
            elif operation == "//" and least > 0:
                corners = [x // y if math.isfinite(x) else x for x in (low, high) for y in (least, most)]
                ends = (min(corners), max(corners))
            value = _OPERATIONS[operation](self.value(a), self.value(b))
            self._atoms[name] = _Atom(value, *ends, operation, (a, b))
        return (((name,), 1),)

    def joined(self, a: Terms, b: Terms) -> tuple[Terms, Terms] | None:
        """The division that (t // m + r) // n is, (t + m r) // (m n), for numbers m, n > 0; None for other a // b.

        So one size has one form, however many strides it was divided by on its way.
        """
        if len(b) != 1 or b[0][0] or b[0][1] < 0:
            return None
        for term in a:
            atom = self._atoms[term[0][0]] if len(term[0]) == 1 and term[1] == 1 else None
            if atom is None or atom.operation != "//":
                continue
            inner, m = atom.parts
            if len(m) == 1 and not m[0][0] and m[0][1] > 0:
                others = tuple(t for t in a if t is not term)
                return _sum(inner, _product(others, m)), _product(m, b)
        return None

    def data(self, terms: Terms) -> Expression:
        """A polynomial as data."""
        return [[factor, [self._atom_data(a) for a in atoms]] for atoms, factor in terms]

    def _atom_data(self, name: str) -> Any:
        atom = self._atoms[name]
        return [atom.operation, *map(self.data, atom.parts)] if atom.operation else int(name[1:])


def _times(a: float, b: float) -> float:
    return 0.0 if a == 0 or b == 0 else a * b


def _inward(bound: float, rounded: Callable[[float], int], outside: int) -> float:
    return rounded(bound + outside * max(1.0, abs(bound)) * 1e-9) if math.isfinite(bound) else bound


def _symbols(sizes: Sizes, terms: Terms) -> set[str]:
    found: set[str] = set()
    for atoms, _ in terms:
        for name in atoms:
            parts = sizes._atoms[name].parts
            found |= {s for part in parts for s in _symbols(sizes, part)} if parts else {name}
    return found


def _sum(a: Terms, b: Terms, sign: int = 1) -> Terms:
    total = dict(a)
    for atoms, factor in b:
        total[atoms] = total.get(atoms, 0) + sign * factor
    return tuple(sorted((atoms, factor) for atoms, factor in total.items() if factor))


def _product(a: Terms, b: Terms) -> Terms:
    total: dict[tuple[str, ...], int] = {}
    for left, f in a:
        for right, g in b:
            atoms = tuple(sorted((*left, *right)))
            total[atoms] = total.get(atoms, 0) + f * g
    return tuple(sorted((atoms, factor) for atoms, factor in total.items() if factor))


def _cancelled(a: Terms, b: Terms) -> tuple[Terms, Terms]:
    """a and b without what all terms of both have in common; a // b stays the same."""
    every = (*a, *b)
    common = list(every[0][0])
    for atoms, _ in every[1:]:
        rest = list(atoms)
        common = [x for x in common if x in rest and not rest.remove(x)]  # type: ignore[func-returns-value]
    divisor: Terms = ((tuple(common), math.gcd(*(f for _, f in every))),)
    x, y = _quotient(a, divisor), _quotient(b, divisor)
    return (a, b) if x is None or y is None else (x, y)


def _quotient(a: Terms, b: Terms) -> Terms | None:
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
    """a / b by long division, where nothing remains: the leading term of a product is that of its factors."""
    made: Terms = ()
    lead = max(b, key=_degree)
    while a:
        step = _quotient((max(a, key=_degree),), (lead,))
        if not step:
            return None
        made, a = _sum(made, step), _sum(a, _product(step, b), -1)
    return made


def _degree(term: tuple[tuple[str, ...], int]) -> tuple[int, tuple[str, ...]]:
    """An order of monomials that products keep."""
    return len(term[0]), term[0]


def _number(value: int) -> Terms:
    return (((), value),) if value else ()


class Dim:
    """A dimension that other runs may bring in another size. Behaves as an int; see the module."""

    __slots__ = ("sizes", "terms")

    def __init__(self, sizes: Sizes, terms: Terms) -> None:
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
        return _number(int(cast(Any, other))) if whole or isinstance(other, int | np.integer) else None

    def _joined(self, other: object, join: Callable[[Terms, Terms], Terms], real: Callable[[Any, Any], Any]) -> Any:
        terms = self._terms(other)
        if terms is not None:
            return self._made(join(self.terms, terms))
        return real(int(self), other) if isinstance(other, float | np.floating) else NotImplemented

    def __add__(self, other: object) -> Any:
        return self._joined(other, _sum, lambda a, b: a + b)

    def __sub__(self, other: object) -> Any:
        return self._joined(other, lambda a, b: _sum(a, b, -1), lambda a, b: a - b)

    def __rsub__(self, other: object) -> Any:
        return self._joined(other, lambda a, b: _sum(b, a, -1), lambda a, b: b - a)

    def __mul__(self, other: object) -> Any:
        return self._joined(other, _product, lambda a, b: a * b)

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
        a, b = _cancelled(a, b)
        exact = _quotient(a, b)
        if exact is not None:
            return self._made(exact)
        whole, rest = self._split(a, b)
        nested = self.sizes.joined(rest, b)
        if nested is not None:
            return self._made(whole) + self._divided(*nested)
        return self._made(_sum(whole, self.sizes.operate("//", rest, b)))

    @staticmethod
    def _split(a: Terms, b: Terms) -> tuple[Terms, Terms]:
        """a = whole * b + rest, by the terms that b divides."""
        divided = [(term, _quotient((term,), b)) for term in a]
        whole: Terms = ()
        for _, quotient in divided:
            whole = _sum(whole, quotient or ())
        return whole, tuple(term for term, quotient in divided if quotient is None)

    def __mod__(self, other: object) -> Any:
        terms = self._terms(other)
        return NotImplemented if terms is None else self._remainder(self.terms, terms)

    def __rmod__(self, other: object) -> Any:
        terms = self._terms(other)
        return NotImplemented if terms is None else self._remainder(terms, self.terms)

    def _remainder(self, a: Terms, b: Terms) -> Any:
        if not b or self.sizes.ask(b, "=="):
            raise ZeroDivisionError(f"{self.sizes.text(a)} modulo {self.sizes.text(b)}")
        if _quotient(a, b) is not None:
            return 0
        _, rest = self._split(a, b)
        return self._made(self.sizes.operate("%", rest, b))

    def __divmod__(self, other: object) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: object) -> Any:
        return other // self, other % self

    def __truediv__(self, other: object) -> Any:
        terms = self._terms(other)
        exact = _quotient(self.terms, terms) if terms else None
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
        return self.sizes.ask(_sum(a, b, -1), comparison) != negate

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
        self.sizes.ask(_sum(self.terms, _number(value), -1), "==", number=True)
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
    a, b = (v.terms if isinstance(v, Dim) else _number(int(v)) for v in (value, by))
    exact = _quotient(a, b) if b else None
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


def evaluate(data: Expression, values: Sequence[int]) -> int:
    """The value of an expression for these sizes."""
    total = 0
    for factor, atoms in data:
        for atom in atoms:
            if isinstance(atom, int):
                factor *= values[atom]
            else:
                operation, a, b = atom
                factor *= _OPERATIONS[operation](evaluate(a, values), evaluate(b, values))
        total += factor
    return total

"""The dynamic dimensions of a plan: their ranges, the guards on them, and expressions over them.

For a polynomial over sizes, the value for the sizes seen and the range of values are known. A comparison with 0 that
the range does not decide is answered by the value and recorded as a guard. Operations beyond polynomials (`//`, `%`)
become atoms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from pyruntime.ir.symbolic.dims import NUMBERS_ALONE, Dim, Expression
from pyruntime.ir.symbolic.polynomials import Terms, common_factor, constant, product, quotient, sum_of

__all__ = ["Guard", "Sizes", "evaluate"]

_ROUNDS = 8
"""Iterations of narrowing ranges by one another. Ranges are valid after each; a few nearly always suffice."""

_OPERATIONS: dict[str, Callable[[int, int], int]] = {"//": lambda a, b: a // b, "%": lambda a, b: a % b}
_COMPARISONS: dict[str, Callable[[int], bool]] = {"<": lambda d: d < 0, "==": lambda d: d == 0}


@dataclass(frozen=True, slots=True)
class _Atom:
    """A size, or an operation on two expressions: the value seen, and the range of values."""

    value: int
    low: float
    high: float
    operation: str = ""
    parts: tuple[Terms, ...] = ()


@dataclass(frozen=True, slots=True)
class Guard:
    """A recorded comparison of `terms` with 0, and its answer.

    Attributes:
        by: the node that was being planned, for reports.
        number: whether code needed the number itself.
    """

    terms: Terms
    comparison: str
    answer: bool
    by: str
    number: bool


@dataclass(slots=True)
class Sizes:
    """The dynamic sizes of a plan, and the assumptions it makes about them.

    Attributes:
        names: names of the sizes in order; expressions call them s0, s1, ...
        ranges: (lowest, highest) of each size.
        grows: whether each size grows from run to run.
        values: sizes that are the only element of an input, by the input's name. Others are dimensions or derived.
        by: the node being planned, recorded in guards.
        _products: ranges of products of atoms that guards narrowed; those of single atoms are in `_atoms`.
        _bounds: polynomials, each with the range that a guard or the definition of `//` implies.
        _same: atoms that guards equate with a polynomial; the polynomials have no such atoms themselves.
    """

    names: list[str] = field(default_factory=list)
    ranges: list[tuple[int, int]] = field(default_factory=list)
    grows: list[bool] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    by: str = ""
    guards: dict[tuple[Terms, str], Guard] = field(default_factory=dict)
    _atoms: dict[str, _Atom] = field(default_factory=dict)
    _products: dict[tuple[str, ...], tuple[float, float]] = field(default_factory=dict)
    _bounds: list[tuple[Terms, int, int]] = field(default_factory=list)
    _same: dict[str, Terms] = field(default_factory=dict)
    _check: Callable[..., bool] | None = None

    def add(self, name: str, value: int, low: int, high: int, grows: bool = False) -> Any:
        """Add a size with the hint `value` and the range [low, high]; return its Dim."""
        atom = f"s{len(self.names)}"
        self.names.append(name)
        self.ranges.append((low, high))
        self.grows.append(grows)
        self._atoms[atom] = _Atom(value, low, high)
        return Dim(self, (((atom,), 1),))

    def index(self, size: Any) -> int:
        """Return the index of a Dim that is one of the sizes itself."""
        (((atom,), _),) = size.terms
        return int(atom[1:])

    def hold(self, values: Sequence[int]) -> bool:
        """Return whether sizes are within the ranges and every guard has its recorded answer."""
        if self._check is None:
            tests = [f"{low} <= s{i} <= {high}" for i, (low, high) in enumerate(self.ranges)]
            for guard in self.guards.values():
                test = f"{self.text(guard.terms)} {guard.comparison} 0"
                tests.append(test if guard.answer else f"not {test}")
            arguments = ", ".join(f"s{i}" for i in range(len(self.names)))
            self._check = eval(f"lambda {arguments}: {' and '.join(tests) or True}", {})
        return self._check(*values)

    @property
    def seen(self) -> list[int]:
        """The value of each size that the plan is made for."""
        return [self._atoms[f"s{i}"].value for i in range(len(self.names))]

    def restore(self, guards: Sequence[Sequence[Any]]) -> bool:
        """Take over the guards of a stored plan; `specialized` leaves them out.

        Args:
            guards: `data` of the terms, comparison and answer of each.

        Returns:
            False, and takes over nothing, where they do not hold for the values seen.
        """

        def check(*values: int) -> bool:
            within = all(low <= v <= high for v, (low, high) in zip(values, self.ranges, strict=True))
            return within and all(_COMPARISONS[c](evaluate(terms, values)) == answer for terms, c, answer in guards)

        if not check(*self.seen):
            return False
        self._check = check
        return True

    def specialized(self, by_chance: bool = True) -> dict[str, str]:
        """Return the sizes that the plan is specialized for, each with the node that caused it.

        Args:
            by_chance: include sizes that were compared with a number and happened to equal it.
        """
        asked: dict[str, str] = {}
        for guard in self.guards.values():
            plain = [atoms for atoms, _ in guard.terms if atoms]
            pinned = len(plain) == 1 and len(plain[0]) == 1 and not self._atoms[plain[0][0]].operation
            if guard.number or (by_chance and guard.comparison == "==" and guard.answer and pinned):
                for name in self.symbols(guard.terms):
                    asked.setdefault(name, guard.by)
        return asked

    def symbols(self, terms: Terms) -> list[str]:
        """Return the names of the sizes in a polynomial, sorted."""
        return sorted(self.names[int(atom[1:])] for atom in self._symbols(terms))

    def _symbols(self, terms: Terms) -> set[str]:
        """Return the size atoms in a polynomial, including those inside operations."""
        found: set[str] = set()
        for atoms, _ in terms:
            for name in atoms:
                parts = self._atoms[name].parts
                found |= {s for part in parts for s in self._symbols(part)} if parts else {name}
        return found

    def pinned_by(self, call: Callable[[], object]) -> bool:
        """Return whether `call` fails with Dims or specializes the plan; the guards it records are removed."""
        before, atoms, bounds = dict(self.guards), dict(self._atoms), len(self._bounds)
        products, same = dict(self._products), dict(self._same)
        try:
            call()
            return any(g.number and not (k in before and before[k].number) for k, g in self.guards.items())
        except NUMBERS_ALONE:
            return True
        finally:
            made = {name: atom for name, atom in self._atoms.items() if name not in atoms}
            self.guards, self._atoms, self._products, self._same = before, atoms, products, same
            self._check = None
            del self._bounds[bounds:]
            for name, atom in made.items():
                self._define(name, atom.operation, *atom.parts)

    def text(self, terms: Terms) -> str:
        """Return a polynomial as Python source."""
        parts = ["*".join((str(factor), *atoms)) for atoms, factor in terms]
        return f"({' + '.join(parts) or '0'})"

    def ask(self, terms: Terms, comparison: str, number: bool = False) -> bool:
        """Compare a polynomial with 0; record a guard where the ranges do not decide."""
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
            if answer and comparison == "==":
                self._learn(terms)
        return answer

    def _learn(self, terms: Terms) -> None:
        """Assume that `terms` is 0: narrow ranges, and substitute an atom so that equal values get the same form and
        bounds.
        """
        self._bounds.append((terms, 0, 0))
        self._narrow()
        terms = self._canonical(terms)
        choices: list[tuple[str, Terms]] = []
        for number, (atoms, factor) in enumerate(terms):
            others = terms[:number] + terms[number + 1 :]
            if len(atoms) == 1 and abs(factor) == 1 and not any(atoms[0] in a for a, _ in others):
                choices.append((atoms[0], product(others, constant(-factor))))
        if choices:
            # A sum has tighter bounds than a difference.
            self._replace(*min(choices, key=lambda choice: sum(factor < 0 for _, factor in choice[1])))

    def _replace(self, name: str, terms: Terms) -> None:
        """Make `_canonical` substitute `terms` for an atom."""
        self._same[name] = terms
        self._same = {known: self._canonical(other) for known, other in self._same.items()}

    def _canonical(self, terms: Terms) -> Terms:
        """Return the terms with all known substitutions applied."""
        if not any(name in self._same for atoms, _ in terms for name in atoms):
            return terms
        total: Terms = ()
        for atoms, factor in terms:
            made: Terms = (((), factor),)
            for name in atoms:
                made = product(made, self._same.get(name, (((name,), 1),)))
            total = sum_of(total, made)
        return total

    def _narrow(self) -> None:
        """Narrow the range of every atom by `_bounds`."""
        for _ in range(_ROUNDS):
            changed = False
            for stated, low, high in self._bounds:
                terms = self._canonical(stated)
                for number, (atoms, _) in enumerate(terms):
                    changed |= bool(atoms) and self._narrow_one(terms, number, low, high)
            if not changed:
                break

    def _narrow_one(self, terms: Terms, number: int, low: float, high: float) -> bool:
        """Narrow the product of atoms in one term, given the range of the others; return whether that changed it."""
        atoms, factor = terms[number]
        rest = self.range(terms[:number] + terms[number + 1 :])
        ends = sorted(((low - rest[1]) / factor, (high - rest[0]) / factor))
        least, most = _inward(ends[0], math.ceil, -1), _inward(ends[1], math.floor, 1)
        before = self.range(((atoms, 1),))
        after = max(before[0], least), min(before[1], most)
        if after == before or after[0] > after[1]:
            return False
        if len(atoms) > 1:
            self._products[atoms] = after
        else:
            self._atoms[atoms[0]] = replace(self._atoms[atoms[0]], low=after[0], high=after[1])
            if after[0] == after[1]:
                self._replace(atoms[0], constant(int(after[0])))
        return True

    def _tight(self, terms: Terms) -> tuple[float, float]:
        """Return a range with a // n taken as a / n minus something below 1, so that terms with the same size can
        cancel.
        """
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
        # The value is an integer, so float rounding cannot change bounds that are rounded to integers.
        return max(low, _inward(bounds[0] + float(slack[0]), math.ceil, -1)), min(
            high, _inward(bounds[1] + float(slack[1]), math.floor, 1)
        )

    def _reduced(self, terms: Terms) -> Terms:
        """Divide terms by their positive common factor, which does not change a comparison with 0."""
        common, factor = common_factor(terms)
        above = tuple(a for a in common if self._atoms[a].low > 0) if len(terms) > 1 else ()
        if not above and factor == 1:
            return terms
        return quotient(terms, ((above, factor),)) or terms

    def value(self, terms: Terms) -> int:
        """Return the value for the sizes seen."""
        return sum(factor * math.prod(self._atoms[a].value for a in atoms) for atoms, factor in terms)

    def range(self, terms: Terms) -> tuple[float, float]:
        """Return lower and upper bounds of the value within the ranges of the sizes."""
        low = high = 0.0
        for atoms, factor in self._canonical(terms):
            ends = [float(factor)]
            known = self._products.get(atoms)
            for limits in [known] if known else [(self._atoms[name].low, self._atoms[name].high) for name in atoms]:
                ends = [_times(end, limit) for end in ends for limit in limits]
            low, high = low + min(ends), high + max(ends)
        return low, high

    def operate(self, operation: str, a: Terms, b: Terms) -> Terms:
        """Return an atom for an operation that is not polynomial; a number where no size is involved."""
        if not any(atoms for atoms, _ in (*a, *b)):
            return constant(_OPERATIONS[operation](self.value(a), self.value(b)))
        name = f"({self.text(a)} {operation} {self.text(b)})"
        if name not in self._atoms:
            self._define(name, operation, a, b)
        return (((name,), 1),)

    def _define(self, name: str, operation: str, a: Terms, b: Terms) -> None:
        """Add an atom for an operation on two expressions."""
        (low, high), (least, most) = self.range(a), self.range(b)
        ends = (-math.inf, math.inf)
        if operation == "%" and least > 0:
            ends = (0, most - 1)
        elif operation == "//" and least > 0:
            corners = [x // y if math.isfinite(x) else x for x in (low, high) for y in (least, most)]
            ends = (min(corners), max(corners))
        value = _OPERATIONS[operation](self.value(a), self.value(b))
        self._atoms[name] = _Atom(value, *ends, operation, (a, b))
        if operation == "//" and len(b) == 1 and not b[0][0] and b[0][1] > 0:
            self._bounds.append((sum_of(a, (((name,), b[0][1]),), -1), 0, b[0][1] - 1))

    def joined(self, a: Terms, b: Terms) -> tuple[Terms, Terms] | None:
        """Merge nested divisions: (t // m + r) // n is (t + m r) // (m n) for numbers m, n > 0; None for other a // b.

        So a size that several strides divide has a single form.
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
                return sum_of(inner, product(others, m)), product(m, b)
        return None

    def data(self, terms: Terms) -> Expression:
        """Return a polynomial as data."""
        return [[factor, [self._atom_data(a) for a in atoms]] for atoms, factor in terms]

    def _atom_data(self, name: str) -> Any:
        atom = self._atoms[name]
        return [atom.operation, *map(self.data, atom.parts)] if atom.operation else int(name[1:])


def _times(a: float, b: float) -> float:
    return 0.0 if a == 0 or b == 0 else a * b


def _inward(bound: float, rounded: Callable[[float], int], outside: int) -> float:
    return rounded(bound + outside * max(1.0, abs(bound)) * 1e-9) if math.isfinite(bound) else bound


def evaluate(data: Expression, values: Sequence[int]) -> int:
    """Evaluate an expression for these sizes."""
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

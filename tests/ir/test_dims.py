"""A Dim computes like an int, and records for which other sizes its answers hold."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pyruntime.ir.symbolic.dims import (
    Dim,
    divisor,
    expression,
    hint,
    int_array,
    is_dim,
    lower,
    multiple,
    positive,
    upper,
)
from pyruntime.ir.symbolic.sizes import Sizes, evaluate

LOW, HIGH = 2, 64
Tree: TypeAlias = Any
"""An int, ('size', n), or (operation, tree, tree)."""

PLAIN: dict[str, Callable[[Any, Any], Any]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
DIVIDED: dict[str, Callable[[Any, Any], Any]] = {
    "//": operator.floordiv,
    "%": operator.mod,
    "quotient": lambda a, b: divmod(a, b)[0],
    "remainder": lambda a, b: divmod(a, b)[1],
}
COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def computed(tree: Tree, sizes: Sequence[Any], answers: list[bool]) -> Any:
    """The value of `tree`; what was compared on the way goes to `answers`."""
    if isinstance(tree, int):
        return tree
    operation, *parts = tree
    if operation == "size":
        return sizes[parts[0]]
    a, b = (computed(part, sizes, answers) for part in parts)
    if operation in PLAIN:
        return PLAIN[operation](a, b)
    if operation in DIVIDED:
        answers.append(bool(b == 0))
        return DIVIDED[operation](a, b)
    if operation in COMPARED:
        answers.append(bool(COMPARED[operation](a, b)))
        return a if answers[-1] else b
    if operation == "abs":
        answers.append(bool(a < 0))
        return abs(a) + b
    answers.append(bool(b < a if operation == "min" else b > a))
    return {"min": min, "max": max}[operation](a, b)


leaves = st.integers(-9, 40) | st.tuples(st.just("size"), st.integers(0, 2))
trees = st.recursive(
    leaves, lambda t: st.tuples(st.sampled_from([*PLAIN, *DIVIDED, *COMPARED, "min", "max", "abs"]), t, t), max_leaves=8
)
three = st.tuples(*[st.integers(LOW, HIGH)] * 3)


def opened(values: Sequence[int]) -> tuple[Sizes, list[Dim]]:
    """Three sizes seen as `values`."""
    sizes = Sizes()
    return sizes, [sizes.add(f"n{i}", v, LOW, HIGH) for i, v in enumerate(values)]


@settings(max_examples=600, deadline=None)
@given(trees, three, st.lists(three, min_size=1, max_size=12))
def test_expressions__of_random_sizes__are_those_of_ints_wherever_the_guards_hold(
    tree: Tree, seen: tuple[int, ...], others: list[tuple[int, ...]]
) -> None:
    sizes, dims = opened(seen)
    wanted, got = list[bool](), list[bool]()
    try:
        expected = computed(tree, seen, wanted)
    except ZeroDivisionError:
        with pytest.raises(ZeroDivisionError):
            computed(tree, dims, got)
        return
    made = computed(tree, dims, got)
    assert (hint(made), got) == (expected, wanted)
    data = expression(made)
    ends = sizes.range(made.terms) if is_dim(made) else (made, made)
    assert sizes.hold(seen) and evaluate(data, seen) == expected and ends[0] <= expected <= ends[1]
    assert not sizes.specialized() or any(g.comparison == "==" and g.answer for g in sizes.guards.values())
    assert divisor(made) == 0 or expected % divisor(made) == 0
    for values in others:
        answers = list[bool]()
        try:
            same: Any = computed(tree, values, answers)
        except ZeroDivisionError:
            same = None
        assert sizes.hold(values) == (same is not None and answers == wanted)
        if sizes.hold(values):
            assert evaluate(data, values) == same and ends[0] <= same <= ends[1]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 2)), min_size=1, max_size=5), three, three)
def test_object_arrays__sums_products_and_divisions__follow_the_sizes(
    terms: list[tuple[int, int]], seen: tuple[int, ...], other: tuple[int, ...]
) -> None:
    def values(sizes: Sequence[Any]) -> list[Any]:
        x = int_array([f * sizes[n] + 7 for f, n in terms])
        every = [x.sum(), x.prod(), *(x * x - x), *np.cumsum(x), *(x // 3), *(x % 4), *np.concatenate([x, [1]])[::-1]]
        return [*every, *np.where(np.arange(len(x)) > 1, x, -x)]

    sizes, dims = opened(seen)
    made = values(dims)
    assert [hint(v) for v in made] == values(seen) and not sizes.guards
    assert [evaluate(expression(v), other) for v in made] == values(other)


def test_numbers__asked_for__pin_the_size_and_say_who_asked() -> None:
    asked: dict[str, Callable[[Any], object]] = {
        "int": int,
        "float": float,
        "range": range,
        "hash": hash,
        "set": lambda d: {d},
        "index": lambda d: [0] * d,
        "bit_length": lambda d: d.bit_length(),
        "true division": lambda d: d / 3,
        "power": lambda d: d**9,
        "power of": lambda d: 2**d,
        "bits": lambda d: d & 3 | 1,
        "shift": lambda d: 1 << d,
        "int64 array": lambda d: np.array([d], np.int64),
        "half": lambda d: d * 0.5,
    }
    for name, ask in asked.items():
        sizes, (a, b, _) = opened((6, 8, 9))
        sizes.by = name
        ask(a)
        ask(b)
        assert sizes.specialized() == {"n0": name, "n1": name}, name
        assert sizes.hold((6, 8, 33)) and not sizes.hold((6, 9, 9)) and not sizes.hold((7, 8, 9))


def test_reports__of_a_dim__remember_nothing() -> None:
    sizes, (a, b, c) = opened((6, 8, 9))
    assert (hint(a * b), upper(a + b), lower(a - b), divisor(6 * a + 4 * b)) == (48, 128, 2 - 64, 2)
    assert multiple(8 * a, 4) and multiple(a * 12, 3) and not multiple(a, 2) and not multiple(8 * a + 1, 4)
    assert positive(a) is a and positive(a * b + c).terms == (a * b + c).terms and positive(0) == 1
    assert (repr(11 * a - b), f"{a}", f"{a:04}", str(a // 2)) == ("11*s0 + -s1", "s0", "0006", "((s0) // (2))")
    assert is_dim(a) and not is_dim(a - a) and a - a == 0 and 3 * a // a == 3 and a % 1 == 0
    assert (4 * a * b) / (2 * b) == 2 * a and not sizes.guards
    product = (a + 1) * (b + 2) * (a + c - 1)
    assert product // ((b + 2) * (a + 1)) == a + c - 1 and product % (b + 2) == 0 and not sizes.guards
    assert positive(a - 3) == 3 and not sizes.hold((3, 8, 9))


def test_comparisons__decided_by_the_ranges__remember_nothing() -> None:
    sizes, (a, b, _) = opened((6, 8, 9))
    assert a > 1 and a <= HIGH and a != 0 and a * b >= 4 and a + b > 3 and bool(a) and -a < 0
    assert a // 2 <= a and (a + 15) // 16 * 16 >= a and a % 4 < 4 and (a + 3) // 4 >= 1
    assert a < math.inf and not a > math.inf and a > -math.inf and a != math.inf and a != math.nan and a != 2.5
    assert not a < math.nan and not a >= math.nan and a != "6" and a is not None
    assert a > 1.5 and a >= 1.5 and a < 64.5 and a > 1.5 and not a <= 1.9
    assert not sizes.guards and sizes.hold((2, 2, 2)) and sizes.hold((64, 64, 64)) and not sizes.hold((65, 2, 2))


def test_comparisons__with_fractions__are_those_of_ints() -> None:
    for compare in (operator.lt, operator.le, operator.gt, operator.ge):
        for edge in (5.5, 6.0, 6.5, np.float32(5.5)):
            for swapped in (False, True):
                sizes, (a, _, _) = opened((6, 8, 9))
                answer = compare(edge, a) if swapped else compare(a, edge)
                for n in range(LOW, HIGH + 1):
                    expected = compare(edge, n) if swapped else compare(n, edge)
                    assert sizes.hold((n, 2, 2)) == (bool(expected) == answer), (compare, edge, swapped, n)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(-6, 6), st.integers(1, 7)), min_size=1, max_size=3), three, st.integers(-20, 20))
def test_comparisons__of_rounded_quotients__are_not_decided_where_they_are_open(
    parts: list[tuple[int, int]], seen: tuple[int, ...], constant: int
) -> None:
    """Bounds of sums of a // n are fractions: what they decide has to hold for all sizes."""

    def total(values: Sequence[Any]) -> Any:
        return sum(f * ((values[i] + i) // n) for i, (f, n) in enumerate(parts)) + constant

    sizes, dims = opened(seen)
    made = total(dims)
    assume(is_dim(made))
    answers = made < 0, made == 0
    for a in (2, 3, 5, 7, 32, 63, 64):
        for b in (2, 4, 6, 64):
            values = (a, b, 64 - a + 2)
            if sizes.hold(values):
                assert (total(values) < 0, total(values) == 0) == answers


def test_divisions__by_a_size_that_may_be_zero__hold_where_it_is_not() -> None:
    for divide in (operator.floordiv, operator.mod, operator.truediv):
        sizes, (a, b, _) = opened((6, 8, 9))
        divide((a - 5) * b, a - 5)
        assert sizes.hold((7, 8, 9)) and not sizes.hold((5, 8, 9)), divide
        with pytest.raises(ZeroDivisionError):
            divide(a, 0)


def test_ranges__of_a_size_seen_at_their_ends__are_kept() -> None:
    sizes = Sizes()
    n = sizes.add("n", 64, 2, 64)
    assert (lower(n // 3), upper(n // 3), upper(n % 7), lower(-n), upper((n + 1) * (n - 1))) == (0, 21, 6, -64, 65 * 63)
    assert upper(100 // n) == 50 and lower(100 // n) == 1


def test_quotients__of_quotients__are_one_division_whatever_the_order() -> None:
    """As a stack of strided convolutions divides a length: what cancels must be seen to."""
    sizes, (a, b, _) = opened((6, 8, 9))
    assert a // 5 // 4 == a // 20 and ((a // 2 - 3) // 2 + 7) // 3 == (a + 22) // 12
    length = (a // 5 // 4 + 2) // 4 + 1
    assert (32 * length * b) // (8 * ((a // 20 + 2) // 4 + 1) * b) == 4
    assert (b + a // 3) // 4 == (3 * b + a) // 12
    assert not sizes.guards
    for values in ((2, 2, 2), (7, 64, 5), (64, 33, 12)):
        inner, (x, y, _) = opened(values)
        m, n = values[0], values[1]
        got = [x // 5 // 4, (x // 7 - y) // 3, (y - 5 * x // 3) // 2, (x // 2 + y // 3) // 4, (2 * (x // 3) + 1) // 4]
        wanted = [
            m // 5 // 4,
            (m // 7 - n) // 3,
            (n - 5 * m // 3) // 2,
            (m // 2 + n // 3) // 4,
            (2 * (m // 3) + 1) // 4,
        ]
        assert [hint(g) for g in got] == wanted
        assert not inner.guards


def test_quotients__of_what_has_common_factors__are_those_of_the_rest() -> None:
    """As -1 of a Reshape is counted: so a view has the size of what it views, also its largest."""
    sizes, (a, b, _) = opened((6, 8, 9))
    padded = -a % 4 + a
    assert (8 * padded * b) // (32 * b) == padded // 4 and (6 * a + 3) // 9 == (2 * a + 1) // 3
    assert upper((8 * padded * b) // (32 * b) * 4) <= upper(padded)
    assert hint((-6 * a + 3) // -9) == (-6 * 6 + 3) // -9 and not sizes.guards


def test_bounds__of_sizes_that_are_equal_by_a_guard__are_those_of_both() -> None:
    sizes = Sizes()
    a, b, n = sizes.add("a", 2, 2, 4), sizes.add("b", 2, 1, 8), sizes.add("n", 6, 2, 16)
    rows = (b * n) // a  # a Reshape to [a, -1] of what has b rows
    assert (lower(rows), upper(rows)) == (0, 64)
    assert rows == n
    assert b == a
    assert (lower(rows), upper(rows)) == (lower(n), upper(n)) == (2, 16)
    assert (lower(b), upper(b)) == (lower(a), upper(a)) == (2, 4)
    assert sizes.hold((3, 3, 5))
    assert not sizes.hold((3, 6, 5))
    assert not sizes.hold((8, 8, 5))


def test_bounds__of_a_size_that_is_a_number_by_a_guard__are_that_number_in_every_form() -> None:
    sizes = Sizes()
    a, b = sizes.add("samples", 320, 2, 512), sizes.add("batch", 4, 2, 8)
    steps, halves = a // 128 - 1, a // 256 + 7
    assert steps == 1
    assert (lower(steps), upper(steps), upper(64 * b * steps)) == (1, 1, 64 * 8)
    assert (lower(a), upper(a)) == (256, 383), "what divides to 2"
    assert (lower(halves), upper(halves), upper(a // 64)) == (8, 8, 5)
    assert sizes.hold((383, 2)) and not sizes.hold((384, 2)) and not sizes.hold((255, 2))


def test_bounds__of_forms_that_a_guard_says_are_equal__are_the_same() -> None:
    sizes = Sizes()
    a, b, n = sizes.add("a", 6, 2, 16), sizes.add("b", 6, 2, 64), sizes.add("batch", 4, 2, 8)
    x = b // 2 + 2
    assert x == a - 1
    for one, other in ((n * x, n * (a - 1)), (n * (x - 3), n * (a - 4)), (x * x - x, (a - 1) * (a - 2))):
        assert (lower(one), upper(one)) == (lower(other), upper(other))


def test_bounds__of_a_product_or_a_sum_that_is_a_number_by_a_guard__are_that_number() -> None:
    sizes = Sizes()
    a, b, n = sizes.add("a", 2, 2, 4), sizes.add("b", 6, 1, 8), sizes.add("n", 6, 2, 16)
    assert a * b == 12
    assert (lower(5 * a * b), upper(5 * a * b)) == (60, 60)
    assert n + 2 * a == 10
    assert (lower(n), upper(n), upper(a)) == (2, 6, 4)


def test_bounds__of_sizes_compared_for_a_trial__stay_as_they_were() -> None:
    sizes = Sizes()
    a, b = sizes.add("a", 2, 2, 4), sizes.add("b", 2, 1, 8)
    made: list[Any] = []

    def trial() -> bool:
        made.append(b // 3)
        return bool(a == b and a * b == 4)

    assert not sizes.pinned_by(trial)
    assert (lower(b), upper(b), upper(a * b)) == (1, 8, 32)
    assert (lower(made[0]), upper(made[0])) == (0, 2)

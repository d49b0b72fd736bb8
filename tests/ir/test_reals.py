"""Quotients of dynamic dimensions, against float32 arithmetic for every size."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pyruntime.ir import DType, Real, Sizes, evaluate, expression, is_dim, is_real, real_of
from pyruntime.ops.elementwise.cast import cast

MOST = 1200
FORMULAS: dict[str, Callable[[Any, Any], Any]] = {
    "ceil of a half": lambda h, ceil: ceil(h / 2),
    "ceil of a third": lambda h, ceil: ceil(h / 3),
    "ceil of a seventh": lambda h, ceil: ceil(h / 7),
    "floor of a half": lambda h, ceil: -ceil(-(h * np.float32(0.5))),
    "three quarters": lambda h, ceil: -ceil(-(h * np.float32(0.75))),
    "nested": lambda h, ceil: ceil(ceil(h / 2) / 3) * 4,
    "padding": lambda h, ceil: (ceil(h / 2) - 1) * 2 + 3 - h,
    "half a padding": lambda h, ceil: ceil(((ceil(h / 4) - 1) * 4 + 7 - h) / 2),
    "sum of parts": lambda h, ceil: ceil(h * np.float32(0.25) + h / 8 + 0.5),
    "one and a half": lambda h, ceil: ceil(1.5 * h - 2),
    "whole": lambda h, ceil: h * 3 + 1,
    "whole of fractions": lambda h, ceil: h / 4 * 8,
}


def size(seen: int = 77, most: int = MOST) -> tuple[Sizes, Any]:
    sizes = Sizes()
    return sizes, sizes.add("h", seen, 2, most)


def float_ceil(x: Any) -> Any:
    return math.ceil(x) if is_real(x) else np.ceil(x)


@pytest.mark.parametrize("name", FORMULAS)
def test_real__formulas_of_exporters__are_float32_arithmetic_for_every_size(name: str) -> None:
    sizes, h = size()
    found = FORMULAS[name](real_of(h), float_ceil).whole()
    assert is_dim(found) and not sizes.specialized()
    data, held = expression(found), 0
    for n in range(2, MOST + 1):
        if sizes.hold([n]):
            held += 1
            wanted = FORMULAS[name](np.float32(n), float_ceil)
            assert evaluate(data, [n]) == int(np.trunc(np.float32(wanted))), n
    assert held > MOST // 2


@pytest.mark.parametrize(
    "formula",
    [
        lambda h: h * np.float32(0.7),
        lambda h: h / 3 * 3,
        lambda h: h / 3 + 1,
        lambda h: 5 / h,
        lambda h: h**0.5,
        lambda h: h / np.float32(0.1),
    ],
)
def test_real__what_float32_rounds__is_of_the_size_seen(formula: Callable[[Any], Any]) -> None:
    sizes, h = size()
    found = formula(real_of(h))
    assert isinstance(found, float)
    assert found == pytest.approx(formula(77.0))
    assert "h" in sizes.specialized()


def test_real__sizes_that_float32_does_not_hold__are_numbers() -> None:
    sizes, h = size(most=1 << 25)
    assert isinstance(real_of(h), float) and "h" in sizes.specialized()
    sizes, h = size(most=1 << 23)
    half = real_of(h) / 2
    assert isinstance(half, Real) and isinstance(half * 4, float)


def test_real__comparisons__are_guards_of_the_quotient() -> None:
    sizes, h = size()
    half = real_of(h) / 2
    assert half > 30 and half != 38 and half >= 38.5 and max(half, 0.0) is half
    assert abs(-half) == half
    assert not sizes.specialized(by_chance=False)
    assert sizes.hold([76]) is False and sizes.hold([77])


def test_real__quotients_of_sizes__are_numbers_where_sizes_cancel() -> None:
    sizes, h = size()
    assert (real_of(h * 4)) / real_of(h) == 4.0 and not sizes.specialized()
    assert (real_of(h) + 1) / real_of(h) == pytest.approx(78 / 77) and "h" in sizes.specialized()


@pytest.mark.parametrize("to", [DType.STRING, DType.FLOAT16, DType.BOOL])
def test_cast__to_types_without_dims__is_of_the_size_seen(to: DType) -> None:
    sizes, h = size()
    given = np.array([h, 2], object)
    np.testing.assert_array_equal(cast(given, to), cast(np.array([77, 2], np.int64), to))
    assert "h" in sizes.specialized()


def test_cast__there_and_back__is_the_size() -> None:
    sizes, h = size()
    there = cast(np.array([h, 2], object), DType.FLOAT)
    back = cast(np.divide(there, np.float32(2)), DType.INT64)
    assert expression(back[0]) == expression(h // 2) and back[1] == 1
    assert not sizes.specialized()

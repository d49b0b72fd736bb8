"""Patterns: names stand for one value each, wherever they are."""

from __future__ import annotations

import numpy as np
import pytest

from pyruntime.passes.match import Matcher, Pattern, either, made_by
from tests.passes.support import graph_of, node

SQUARE = either(made_by("Pow", "x", 2.0), made_by("Mul", "x", "x"))


@pytest.mark.parametrize(
    ("value", "pattern", "bound"),
    [
        ("p", SQUARE, {"x": "a"}),
        ("m", SQUARE, {"x": "a"}),
        ("n", SQUARE, None),  # two values
        ("p", made_by("Pow", "x", 3.0), None),
        (
            "s",
            made_by("Add", made_by("Mul", "x", "y", name="product"), "z"),
            {"x": "a", "y": "b", "product": "n", "z": "p"},
        ),
        ("s", made_by("Add", "z", made_by("Pow", "x", 2.0)), {"z": "n", "x": "a"}),
        ("d", made_by("Sub", made_by("Mul", "x", "y"), "z"), None),  # the operands of Sub have an order
        ("d", made_by("Sub", "z", made_by("Mul", "y", "z")), None),
        ("a", made_by("Relu"), None),
    ],
)
def test_bind__pattern__gives_the_values_of_its_names(
    value: str, pattern: Pattern, bound: dict[str, str] | None
) -> None:
    nodes = [
        node("Pow", ["a", "two"], ["p"]),
        node("Mul", ["a", "a"], ["m"]),
        node("Mul", ["a", "b"], ["n"]),
        node("Add", ["p", "n"], ["s"]),
        node("Sub", ["p", "n"], ["d"]),
    ]
    constants = {"two": np.array(2, np.float32)}
    graph = graph_of(nodes, {"a": (2,), "b": (2,)}, ["m", "s", "d"], constants)
    assert next(Matcher(graph).bind(value, pattern), None) == bound


def test_bind__names_that_are_bound__keep_their_values() -> None:
    graph = graph_of([node("Mul", ["a", "b"], ["y"])], {"a": (2,), "b": (2,)}, ["y"])
    match = Matcher(graph)
    assert next(match.bind("y", made_by("Mul", "x", "z"), {"x": "b"})) == {"x": "b", "z": "a"}
    assert next(match.bind("y", made_by("Mul", "x", "z"), {"x": "c"}), None) is None

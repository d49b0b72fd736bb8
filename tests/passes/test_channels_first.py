"""Elementwise regions between transpositions have their channels first; what a graph computes stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyruntime.ir import Node
from pyruntime.passes.layout import channels_first
from tests.passes.support import apply, cleaned, graph_of, node
from tests.passes.test_channels_last import FIRST, LAST, floats

WEIGHTS = {"w": floats(4, 4, 3, 3), "c": floats(4, seed=1), "one": floats(1, 1, 1, 4, seed=2), "two": np.float32(2)}


def conv(x: str, y: str) -> list[Node]:
    """A convolution of [N, H, W, C], as NhwcConv is written."""
    return [
        node("Transpose", [x], [f"{y}_x"], perm=FIRST),
        node("Conv", [f"{y}_x", "w"], [f"{y}_y"], pads=(1, 1, 1, 1)),
        node("Transpose", [f"{y}_y"], [y], perm=LAST),
    ]


def turned(nodes: list[Node], outputs: list[str], **inputs: tuple[int, ...]) -> tuple[bool, list[str]]:
    """Whether the pass changed anything, and the operators that are left."""
    graph = graph_of(nodes, inputs, outputs, WEIGHTS)
    changed = apply(channels_first.run, graph)
    return changed, cleaned(graph)


def test_residuals__between_convolutions__move_nothing() -> None:
    nodes = [
        *conv("x", "a"),
        node("Add", ["a", "c"], ["a1"]),
        node("Relu", ["a1"], ["a2"]),
        *conv("a2", "b"),
        node("Mul", ["b", "one"], ["b1"]),
        node("Add", ["b1", "a2"], ["b2"]),
        node("Mul", ["b2", "two"], ["b3"]),
        *conv("b3", "y"),
    ]
    changed, left = turned(nodes, ["y"], x=(2, 5, 6, 4))
    assert changed
    assert left.count("Transpose") == 2  # of the input and of the output
    assert left.count("Conv") == 3


def test_region__that_others_read_too__is_turned_once_for_them() -> None:
    nodes = [*conv("x", "a"), node("Relu", ["a"], ["r"]), *conv("r", "b"), *conv("r", "d")]
    nodes += [node("Add", ["b", "d"], ["s"]), node("Sigmoid", ["s"], ["t"]), *conv("t", "y")]
    changed, left = turned(nodes, ["y", "r"], x=(1, 5, 6, 4))
    assert changed
    assert left.count("Transpose") == 3


@pytest.mark.parametrize(
    "between",
    [
        [node("Relu", ["a"], ["r"]), node("Softmax", ["r"], ["b"], axis=-1)],  # over the channels
        [node("Add", ["a", "z"], ["b"])],  # another movement would be as dear
    ],
)
def test_region__that_would_save_nothing__stays(between: list[Node]) -> None:
    nodes = [*conv("x", "a"), *between]
    graph = graph_of(nodes, {"x": (1, 5, 6, 4), "z": (1, 5, 6, 4)}, ["b"], WEIGHTS)
    before = list(graph.nodes)
    assert not apply(channels_first.run, graph)
    assert graph.nodes == before


def test_operand__with_spatial_extent__keeps_the_region_as_it_is() -> None:
    constants: dict[str, Any] = {**WEIGHTS, "field": floats(5, 6, 4)}
    nodes = [*conv("x", "a"), node("Add", ["a", "field"], ["b"]), *conv("b", "y")]
    graph = graph_of(nodes, {"x": (1, 5, 6, 4)}, ["y"], constants)
    assert not apply(channels_first.run, graph)

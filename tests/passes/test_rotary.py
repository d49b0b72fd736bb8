"""Rotary embeddings as exporters write them are one node, those of queries and keys together. Matches, and none."""

from __future__ import annotations

from typing import Any

import pytest

from pyruntime.ir import Node
from pyruntime.passes.fusion import fuse_rotary
from tests.passes.support import LAST, apply, cleaned, graph_of, ints, node


def halves(x: str, size: int, constants: dict[str, Any], steps: bool = False) -> list[Node]:
    """`a` and `b`: the halves of x, or its even and odd components."""
    half = size // 2
    given = [(0, half, 1), (half, LAST, 1)] if not steps else [(0, LAST, 2), (1, LAST, 2)]
    nodes = []
    for name, (start, end, step) in zip("ab", given, strict=True):
        for kind, value in (("start", start), ("end", end), ("axis", -1), ("step", step)):
            constants[f"{name}_{kind}"] = ints(value)
        nodes.append(node("Slice", [x, *(f"{name}_{k}" for k in ("start", "end", "axis", "step"))], [name]))
    return nodes


def rotate_half(swapped: bool = False, axis: int = -1) -> tuple[list[Node], dict[str, Any]]:
    constants: dict[str, Any] = {}
    nodes = halves("x", 8, constants)
    nodes += [
        node("Neg", ["a" if swapped else "b"], ["n"]),
        node("Concat", ["n", "b" if swapped else "a"], ["r"], axis=axis),
        node("Mul", ["x", "cos"], ["own"]),
        node("Mul", ["sin", "r"], ["across"]),
        node("Add", ["own", "across"], ["y"]),
    ]
    return nodes, constants


SHAPES = {"x": (2, 3, 5, 8), "cos": (1, 1, 5, 8), "sin": (1, 1, 5, 8)}


@pytest.mark.parametrize("table", [(1, 1, 5, 8), (2, 1, 5, 8), (5, 8), (8,), (2, 3, 5, 8)])
def test_fuse_rotary__rotate_half__is_one_node(table: tuple[int, ...]) -> None:
    nodes, constants = rotate_half()
    graph = graph_of(nodes, {**SHAPES, "cos": table, "sin": table}, ["y"], constants)
    assert apply(fuse_rotary.run, graph)
    assert cleaned(graph) == ["FusedRotary"]


def test_fuse_rotary__halves_the_wrong_way_round__is_left_alone() -> None:
    nodes, constants = rotate_half(swapped=True)
    assert not apply(fuse_rotary.run, graph_of(nodes, SHAPES, ["y"], constants))


def test_fuse_rotary__halves_of_another_value__are_left_alone() -> None:
    nodes, constants = rotate_half()
    nodes[4] = node("Mul", ["z", "cos"], ["own"])
    assert not apply(fuse_rotary.run, graph_of(nodes, {**SHAPES, "z": SHAPES["x"]}, ["y"], constants))


def test_fuse_rotary__tables_of_two_shapes__are_left_alone() -> None:
    nodes, constants = rotate_half()
    assert not apply(fuse_rotary.run, graph_of(nodes, {**SHAPES, "sin": (5, 1)}, ["y"], constants))


def test_fuse_rotary__table_larger_than_the_heads__is_left_alone() -> None:
    nodes, constants = rotate_half()
    shapes = {"x": (1, 3, 5, 8), "cos": (2, 1, 5, 8), "sin": (2, 1, 5, 8)}
    assert not apply(fuse_rotary.run, graph_of(nodes, shapes, ["y"], constants))


@pytest.mark.parametrize("neg_first", [True, False])
def test_fuse_rotary__interleaved__is_one_node(neg_first: bool) -> None:
    constants: dict[str, Any] = {"last": ints(-1), "shape": ints(2, 3, 5, 8)}
    nodes = [
        *halves("x", 8, constants, steps=True),
        node("Neg", ["b"], ["n"]),
        node("Unsqueeze", ["n", "last"], ["u"]),
        node("Unsqueeze", ["a", "last"], ["v"]),
        node("Concat", ["u", "v"], ["c"], axis=-1),
        node("Reshape", ["c", "shape"], ["r"]),
        node("Mul", ["x", "cos"], ["own"]),
        node("Mul", ["r", "sin"], ["across"]),
        node("Add", ["across", "own"], ["y"]),
    ]
    if not neg_first:
        nodes[2:4] = [node("Unsqueeze", ["b", "last"], ["n"]), node("Neg", ["n"], ["u"])]
    graph = graph_of(nodes, SHAPES, ["y"], constants)
    assert apply(fuse_rotary.run, graph) == neg_first
    assert ("FusedRotary" in cleaned(graph)) == neg_first


@pytest.mark.parametrize("interleaved", [True, False])
def test_fuse_rotary__halves_turned_one_by_one__is_one_node(interleaved: bool) -> None:
    constants: dict[str, Any] = {"last": ints(-1), "shape": ints(2, 3, 5, 8)}
    nodes = [
        *halves("x", 8, constants, steps=interleaved),
        *(node("Mul", [x, t], [f"{x}{t}"]) for x in "ab" for t in ("cos", "sin")),
        node("Sub", ["acos", "bsin"], ["one"]),
        node("Add", ["bcos", "asin"], ["two"]),
    ]
    if interleaved:
        nodes += [node("Unsqueeze", [n, "last"], [f"{n}_u"]) for n in ("one", "two")]
        nodes += [node("Concat", ["one_u", "two_u"], ["c"], axis=-1), node("Reshape", ["c", "shape"], ["y"])]
    else:
        nodes.append(node("Concat", ["one", "two"], ["y"], axis=-1))
    graph = graph_of(nodes, {"x": (2, 3, 5, 8), "cos": (1, 1, 5, 4), "sin": (1, 1, 5, 4)}, ["y"], constants)
    assert apply(fuse_rotary.run, graph)
    assert cleaned(graph) == ["FusedRotary"]


def test_fuse_rotary__first_components_alone__rest_joins() -> None:
    nodes, constants = rotate_half()
    constants |= {"zero": ints(0), "eight": ints(8), "end": ints(LAST), "axis": ints(3)}
    front = [
        node("Slice", ["whole", "zero", "eight", "axis"], ["x"]),
        node("Slice", ["whole", "eight", "end", "axis"], ["rest"]),
    ]
    nodes = [*front, *nodes, node("Concat", ["y", "rest"], ["z"], axis=-1)]
    shapes = {"whole": (2, 3, 5, 14), "cos": (5, 8), "sin": (5, 8)}
    graph = graph_of(nodes, shapes, ["z"], constants)
    assert apply(fuse_rotary.run, graph)
    assert cleaned(graph) == ["FusedRotary"]

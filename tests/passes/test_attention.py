"""Attention as exporters write it: repeated heads, projections picked by number, caps, masks. Matches, and none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyruntime.ir import Node, TypedGraph
from pyruntime.passes.fusion import fuse_attention
from pyruntime.passes.layout import unmerge_transpose
from tests.passes.support import apply, cleaned, graph_of, ints, node


def attention(repeat_v: int, unmerged: bool = True) -> tuple[list[Node], dict[str, tuple[int, ...]], dict[str, Any]]:
    constants: dict[str, Any] = {
        "two": ints(2),
        "wide": ints(2, 2, 3, 7, 8),
        "heads": ints(2, 6, 7, 8),
        "merged": ints(12, 7, 8),
        "turned": ints(2, 6, 8, 7),
    }
    nodes = [node("Unsqueeze", ["k", "two"], ["k5"]), node("Expand", ["k5", "wide"], ["kw"])]
    if unmerged:
        nodes += [node("Reshape", ["kw", "heads"], ["kh"]), node("Transpose", ["kh"], ["kt"], perm=(0, 1, 3, 2))]
    else:
        nodes += [
            node("Reshape", ["kw", "merged"], ["km"]),
            node("Transpose", ["km"], ["kmt"], perm=(0, 2, 1)),
            node("Reshape", ["kmt", "turned"], ["kt"]),
        ]
    value = "v"
    if repeat_v > 1:
        nodes += [
            node("Unsqueeze", ["v", "two"], ["v5"]),
            node("Expand", ["v5", "wide"], ["vw"]),
            node("Reshape", ["vw", "heads"], ["vh"]),
        ]
        value = "vh"
    nodes += [
        node("MatMul", ["q", "kt"], ["s"]),
        node("Softmax", ["s"], ["p"], axis=-1),
        node("MatMul", ["p", value], ["y"]),
    ]
    shapes: dict[str, tuple[int, ...]] = {"q": (2, 6, 5, 8), "k": (2, 2, 7, 8), "v": (2, 6 // repeat_v, 7, 8)}
    return nodes, shapes, constants


def test_fuse_attention__keys_and_values_repeated__are_read_where_they_are() -> None:
    nodes, shapes, constants = attention(3)
    graph = graph_of(nodes, shapes, ["y"], constants)
    assert apply(fuse_attention.run, graph)
    assert cleaned(graph) == ["FusedAttention"]
    assert graph.nodes[0].inputs == ("q", "k", "v")


def test_fuse_attention__values_not_repeated__keys_are_expanded() -> None:
    nodes, shapes, constants = attention(1)
    graph = graph_of(nodes, shapes, ["y"], constants)
    assert apply(fuse_attention.run, graph)
    assert "Expand" in cleaned(graph)


def test_unmerge_transpose__keys_of_the_new_exporter__are_grouped_heads() -> None:
    nodes, shapes, constants = attention(3, unmerged=False)
    graph = graph_of(nodes, shapes, ["y"], constants)
    assert apply(unmerge_transpose.run, graph)
    assert apply(fuse_attention.run, graph)
    assert cleaned(graph) == ["FusedAttention"]


def test_unmerge_transpose__last_dimensions_that_change__are_left_alone() -> None:
    constants = {"m": ints(6, 4, 5), "s": ints(2, 3, 20, 1)}
    nodes = [
        node("Reshape", ["x", "m"], ["a"]),
        node("Transpose", ["a"], ["b"], perm=(0, 2, 1)),
        node("Reshape", ["b", "s"], ["y"]),
    ]
    assert not apply(unmerge_transpose.run, graph_of(nodes, {"x": (2, 3, 4, 5)}, ["y"], constants))


@pytest.mark.parametrize("places", [(0, 1, 2), (2, 0, -2)])
def test_fuse_attention__projections_picked_by_number__are_read_where_they_are(places: tuple[int, int, int]) -> None:
    nodes = [
        node("Reshape", ["x", "apart"], ["wide"]),
        node("Transpose", ["wide"], ["qkv"], perm=(2, 0, 3, 1, 4)),
        *(node("Gather", ["qkv", f"at_{n}"], [n], axis=0) for n in "qkv"),
        node("Transpose", ["k"], ["kt"], perm=(0, 1, 3, 2)),
        node("MatMul", ["q", "kt"], ["s"]),
        node("Softmax", ["s"], ["p"], axis=-1),
        node("MatMul", ["p", "v"], ["y"]),
    ]
    constants = {"apart": ints(2, 5, 3, 4, 8)} | {f"at_{n}": np.int64(i) for n, i in zip("qkv", places, strict=True)}
    graph = graph_of(nodes, {"x": (2, 5, 96)}, ["y"], constants)
    assert apply(fuse_attention.run, graph)
    assert cleaned(graph) == ["FusedAttention"]


@pytest.mark.parametrize("places", [(1, 2, 3), (0, 2, 4), (-3,), (4, 3), (0, 1, 3)])
def test_fuse_attention__rows_picked__are_a_view_where_they_are_equally_far_apart(places: tuple[int, ...]) -> None:
    nodes = [
        node("Gather", ["x", "at"], ["k"], axis=2),
        node("MatMul", ["q", "k"], ["s"]),
        node("Softmax", ["s"], ["p"], axis=-1),
        node("MatMul", ["p", "v"], ["y"]),
    ]
    count = len(places)
    shapes = {"q": (2, 4, 8), "x": (2, 8, 5), "v": (2, count, 8)}
    graph = graph_of(nodes, shapes, ["y"], {"at": ints(*places)})
    assert apply(fuse_attention.run, graph)
    assert cleaned(graph) == (["FusedAttention"] if places not in ((4, 3), (0, 1, 3)) else ["Gather", "FusedAttention"])


def capped(before: str, after: str = "Mul", inside: bool = False, cap: float = 3.0) -> TypedGraph:
    """Attention whose scores Gemma 2's soft cap bounds; `inside`: the mask is added before it."""
    scored = "m1" if inside else "s1"
    nodes = [
        node("Transpose", ["k"], ["kt"], perm=(0, 1, 3, 2)),
        node("MatMul", ["q", "kt"], ["s0"]),
        node("Mul", ["scale", "s0"], ["s1"]),
        *([node("Add", ["s1", "m"], ["m1"])] if inside else []),
        *([node(before, [scored, "before"], ["s2"])] if before else []),
        node("Tanh", ["s2" if before else scored], ["s3"]),
        *([node(after, ["s3", "after"], ["s4"])] if after else []),
        *([] if inside else [node("Add", ["s4" if after else "s3", "m"], ["m1"])]),
        node("Softmax", [("s4" if after else "s3") if inside else "m1"], ["p"], axis=-1),
        node("MatMul", ["p", "v"], ["y"]),
    ]
    constants = {"scale": np.float32(0.7), "before": np.float32(cap), "after": np.float32(cap)}
    return graph_of(nodes, {**dict.fromkeys("qkv", (2, 3, 5, 8)), "m": (2, 1, 5, 5)}, ["y"], constants)


@pytest.mark.parametrize(
    ("before", "after"), [("Div", "Mul"), ("Mul", "Mul"), ("Mul", "Div"), ("", "Mul"), ("Div", "")]
)
def test_fuse_attention__soft_cap_before_the_mask__is_one_kernel(before: str, after: str) -> None:
    graph = capped(before, after)
    assert apply(fuse_attention.run, graph)
    assert cleaned(graph) == ["FusedAttention"]


@pytest.mark.parametrize(
    "graph", [capped("Div", inside=True), capped("Div", cap=-3.0)], ids=["mask inside", "negative"]
)
def test_fuse_attention__mask_inside_the_cap_or_a_negative_one__is_left_alone(graph: TypedGraph) -> None:
    assert not apply(fuse_attention.run, graph)


@pytest.mark.parametrize(("first", "second"), [((1, 2, 5, 5), (4, 1, 5, 5)), ((5, 5), (4, 2, 1, 5))])
def test_fuse_attention__two_masks__are_one(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    nodes = [
        node("Transpose", ["k"], ["kt"], perm=(0, 1, 3, 2)),
        node("MatMul", ["q", "kt"], ["s"]),
        node("Add", ["s", "m"], ["a"]),
        node("Add", ["a", "n"], ["b"]),
        node("Softmax", ["b"], ["p"], axis=-1),
        node("MatMul", ["p", "v"], ["y"]),
    ]
    heads = dict.fromkeys("qkv", (4, 2, 5, 8))
    graph = graph_of(nodes, {**heads, "m": first, "n": second}, ["y"])
    assert apply(fuse_attention.run, graph)
    assert cleaned(graph) == ["Add", "FusedAttention"]


def test_fuse_attention__two_masks_in_every_layer__are_added_once() -> None:
    nodes: list[Node] = []
    for x, y, masks in (("q", "h", "mn"), ("h", "g", "nm"), ("g", "y", "mo")):
        nodes += [
            node("Transpose", ["k"], [f"{y}_kt"], perm=(0, 1, 3, 2)),
            node("MatMul", [x, f"{y}_kt"], [f"{y}_s"]),
            node("Add", [f"{y}_s", masks[0]], [f"{y}_a"]),
            node("Add", [f"{y}_a", masks[1]], [f"{y}_b"]),
            node("Softmax", [f"{y}_b"], [f"{y}_p"], axis=-1),
            node("MatMul", [f"{y}_p", "v"], [y]),
        ]
    heads = dict.fromkeys("qkv", (4, 2, 5, 8))
    graph = graph_of(nodes, {**heads, "m": (1, 2, 5, 5), "n": (4, 1, 1, 5), "o": (5, 5)}, ["y"])
    assert apply(fuse_attention.run, graph)
    assert cleaned(graph) == ["Add", "FusedAttention", "FusedAttention", "Add", "FusedAttention"]

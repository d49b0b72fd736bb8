"""Patterns as exporters write them: rotary embeddings, repeated heads, caches, windows, gates. Matches, and none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyruntime.ir import Node, TypedGraph
from pyruntime.kernels import Target
from pyruntime.ops.registry import op_class
from pyruntime.passes import (
    common_subexpressions,
    dead_code,
    drop_expand,
    fuse_append,
    fuse_attention,
    fuse_elementwise,
    fuse_roll,
    fuse_rotary,
    join_rotary,
    pair_products,
    settle,
    unit_dims,
    unmerge_transpose,
)
from tests.passes.support import apply, graph_of, node, op_types

RNG = np.random.default_rng(3)
LAST = 2**63 - 1


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def cleaned(graph: TypedGraph) -> list[str]:
    dead_code.run(graph, Target())
    return op_types(graph)


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


def test_join_rotary__queries_and_keys_of_one_product__turn_together() -> None:
    constants: dict[str, Any] = {"sizes": ints(16, 8), "q_shape": ints(2, 5, 2, 8), "k_shape": ints(2, 5, 1, 8)}
    nodes = [node("Split", ["qk", "sizes"], ["q", "k"], axis=2)]
    for name in "qk":
        nodes += [
            node("Reshape", [name, f"{name}_shape"], [f"{name}_heads"]),
            node("Transpose", [f"{name}_heads"], [f"{name}_x"], perm=(0, 2, 1, 3)),
        ]
        inner: dict[str, Any] = {}
        slices = halves(f"{name}_x", 8, inner)
        constants |= inner
        for made in slices:
            part = made.outputs[0]
            nodes.append(Node(made.op, made.inputs, (f"{name}_{part}",), made.name))
        nodes += [
            node("Neg", [f"{name}_b"], [f"{name}_n"]),
            node("Concat", [f"{name}_n", f"{name}_a"], [f"{name}_r"], axis=-1),
            node("Mul", [f"{name}_x", "cos"], [f"{name}_own"]),
            node("Mul", [f"{name}_r", "sin"], [f"{name}_across"]),
            node("Add", [f"{name}_own", f"{name}_across"], [f"{name}_y"]),
            node("Relu", [f"{name}_y"], [f"{name}_out"]),
        ]
    graph = graph_of(nodes, {"qk": (2, 5, 24), "cos": (5, 8), "sin": (5, 8)}, ["q_out", "k_out"], constants)
    assert apply(fuse_rotary.run, graph)
    assert cleaned(graph) == ["FusedRotary", "Relu", "FusedRotary", "Relu"]
    assert apply(join_rotary.run, graph)
    assert cleaned(graph) == ["FusedRotary", "Split", "Relu", "Relu"]
    assert not apply(join_rotary.run, graph)


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


@pytest.mark.parametrize("swapped", [False, True])
def test_drop_expand__norms_as_wide_as_what_they_divide__are_read_as_they_are(swapped: bool) -> None:
    inputs = ["e", "x"] if swapped else ["x", "e"]
    nodes = [node("Expand", ["n", "shape"], ["e"]), node("Add", inputs, ["y"])]
    graph = graph_of(nodes, {"x": (2, 3, 4), "n": (3, 1)}, ["y"], {"shape": ints(2, 3, 4)})
    assert apply(drop_expand.run, graph)
    assert cleaned(graph) == ["Add"]


@pytest.mark.parametrize(("a", "b", "left"), [((3, 1), (1,), ["Expand", "Add"]), ((2, 3, 1), (4,), ["Add"])])
def test_drop_expand__two_values_as_wide_as_each_other__those_that_make_it_wide_stay(
    a: tuple[int, ...], b: tuple[int, ...], left: list[str]
) -> None:
    nodes = [
        node("Expand", ["a", "shape"], ["wide_a"]),
        node("Expand", ["b", "shape"], ["wide_b"]),
        node("Add", ["wide_a", "wide_b"], ["y"]),
    ]
    graph = graph_of(nodes, {"a": a, "b": b}, ["y"], {"shape": ints(2, 3, 4)})
    assert apply(drop_expand.run, graph)
    assert cleaned(graph) == left


def test_drop_expand__what_makes_the_result_wide_or_is_no_elementwise_input__stays() -> None:
    nodes = [
        node("Expand", ["n", "shape"], ["e"]),
        node("Add", ["e", "m"], ["y"]),
        node("Concat", ["e", "e"], ["z"], axis=0),
    ]
    graph = graph_of(nodes, {"n": (3, 1), "m": (3, 4)}, ["y", "z"], {"shape": ints(2, 3, 4)})
    assert not apply(drop_expand.run, graph)


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


def test_unit_dims__mask_of_windows__meets_the_scores() -> None:
    constants = {"up": ints(1, 4, 2, 5, 5), "down": ints(4, 2, 5, 5)}
    nodes = [
        node("Reshape", ["x", "up"], ["a"]),
        node("Add", ["a", "m"], ["b"]),
        node("Reshape", ["b", "down"], ["y"]),
    ]
    graph = graph_of(nodes, {"x": (4, 2, 5, 5), "m": (1, 4, 1, 5, 5)}, ["y"], constants)
    assert apply(unit_dims.run, graph)
    assert cleaned(graph) == ["Reshape", "Add"]


def test_unit_dims__batches_of_windows__are_left_alone() -> None:
    constants = {"up": ints(2, 4, 2, 5, 5), "down": ints(8, 2, 5, 5)}
    nodes = [
        node("Reshape", ["x", "up"], ["a"]),
        node("Add", ["a", "m"], ["b"]),
        node("Reshape", ["b", "down"], ["y"]),
    ]
    assert not apply(unit_dims.run, graph_of(nodes, {"x": (8, 2, 5, 5), "m": (1, 4, 1, 5, 5)}, ["y"], constants))


def test_fuse_append__rows_that_are_a_view__are_read_where_they_are() -> None:
    nodes = [node("Transpose", ["x"], ["t"], perm=(0, 2, 1, 3)), node("Concat", ["past", "t"], ["y"], axis=-2)]
    graph = graph_of(nodes, {"x": (2, 3, 4, 8), "past": (2, 4, 6, 8)}, ["y"])
    assert apply(fuse_append.run, graph)
    assert cleaned(graph) == ["AppendHeads"]


@pytest.mark.parametrize("axis", [0, 1, 3])
def test_fuse_append__another_axis__is_left_alone(axis: int) -> None:
    nodes = [node("Transpose", ["x"], ["t"], perm=(0, 2, 1, 3)), node("Concat", ["past", "t"], ["y"], axis=axis)]
    assert not apply(fuse_append.run, graph_of(nodes, {"x": (2, 3, 4, 8), "past": (2, 4, 3, 8)}, ["y"]))


def test_fuse_append__whole_rows__are_left_to_concat() -> None:
    graph = graph_of([node("Concat", ["past", "x"], ["y"], axis=2)], {"x": (2, 4, 3, 8), "past": (2, 4, 6, 8)}, ["y"])
    assert not apply(fuse_append.run, graph)


def rolled(x: str, y: str, axis: int, shift: int, constants: dict[str, Any], second: int | None = None) -> list[Node]:
    constants |= {f"{y}_at": ints(shift), f"{y}_axis": ints(axis), "zero": ints(0), "end": ints(LAST)}
    constants[f"{y}_to"] = ints(shift if second is None else second)
    return [
        node("Slice", [x, f"{y}_at", "end", f"{y}_axis"], [f"{y}_a"]),
        node("Slice", [x, "zero", f"{y}_to", f"{y}_axis"], [f"{y}_b"]),
        node("Concat", [f"{y}_a", f"{y}_b"], [y], axis=axis),
    ]


def test_fuse_roll__windows_of_a_rolled_picture__are_one_node() -> None:
    constants: dict[str, Any] = {"split": ints(2, 3, 2, 2, 4, 5), "windows": ints(12, 8, 5)}
    nodes = [
        *rolled("x", "r", 1, 1, constants),
        *rolled("r", "s", 2, -3, constants),
        node("Reshape", ["s", "split"], ["a"]),
        node("Transpose", ["a"], ["b"], perm=(0, 1, 3, 2, 4, 5)),
        node("Reshape", ["b", "windows"], ["y"]),
    ]
    graph = graph_of(nodes, {"x": (2, 6, 8, 5)}, ["y"], constants)
    assert apply(fuse_roll.run, graph)
    assert op_types(graph) == ["RolledTranspose"]


def test_fuse_roll__windows_put_back_and_rolled__are_one_node() -> None:
    constants: dict[str, Any] = {"split": ints(2, 3, 2, 2, 4, 5), "picture": ints(2, 6, 8, 5)}
    nodes = [
        node("Reshape", ["x", "split"], ["a"]),
        node("Transpose", ["a"], ["b"], perm=(0, 1, 3, 2, 4, 5)),
        node("Reshape", ["b", "picture"], ["c"]),
        *rolled("c", "r", 1, -1, constants),
        *rolled("r", "y", 2, 3, constants),
    ]
    graph = graph_of(nodes, {"x": (12, 2, 4, 5)}, ["y"], constants)
    assert apply(fuse_roll.run, graph)
    assert "Concat" not in op_types(graph)
    assert len(graph.nodes) <= 2


@pytest.mark.parametrize("second", [0, 2, 4])
def test_fuse_roll__slices_that_overlap_or_leave_a_gap__are_left_alone(second: int) -> None:
    constants: dict[str, Any] = {}
    graph = graph_of(rolled("x", "y", 1, 3, constants, second), {"x": (2, 6, 5)}, ["y"], constants)
    assert not apply(fuse_roll.run, graph)


def test_settle__shape_computed_from_sizes__is_a_constant() -> None:
    constants = {"at": ints(0), "rest": ints(-1)}
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "at"], ["n"]),
        node("Concat", ["n", "rest"], ["shape"], axis=0),
        node("Reshape", ["x", "shape"], ["y"]),
    ]
    graph = graph_of(nodes, {"x": (2, 3, 4)}, ["y"], constants)
    assert apply(settle.run, graph)
    assert cleaned(graph) == ["Reshape"]


def test_settle__nodes_that_change_nothing__go() -> None:
    constants = {"s": ints(2, 3), "zero": ints(0), "end": ints(LAST)}
    nodes = [
        node("Identity", ["x"], ["a"]),
        node("Cast", ["a"], ["b"], to=1),
        node("Expand", ["b", "s"], ["c"]),
        node("Transpose", ["c"], ["d"], perm=(0, 1)),
        node("Slice", ["d", "zero", "end", "zero"], ["e"]),
        node("Concat", ["e"], ["f"], axis=0),
        node("Relu", ["f"], ["y"]),
    ]
    graph = graph_of(nodes, {"x": (2, 3)}, ["y"], constants)
    assert apply(settle.run, graph)
    assert cleaned(graph) == ["Relu"]


def test_settle__what_changes_something__stays() -> None:
    constants = {"first": ints(-1), "end": ints(-LAST), "axis": ints(0), "step": ints(-1)}
    nodes = [node("Slice", ["x", "first", "end", "axis", "step"], ["a"]), node("Cast", ["a"], ["y"], to=10)]
    graph = graph_of(nodes, {"x": (3,)}, ["y"], constants)
    assert not apply(settle.run, graph)


def test_common_subexpressions__constants_of_equal_bytes__are_one() -> None:
    nodes = [node("Mul", ["x", "a"], ["p"]), node("Mul", ["x", "b"], ["q"]), node("Sub", ["p", "q"], ["y"])]
    two = np.float32(2)
    graph = graph_of(nodes, {"x": (3,)}, ["y"], {"a": two, "b": two})
    assert apply(common_subexpressions.run, graph)
    assert op_types(graph) == ["Mul", "Sub"]


def test_common_subexpressions__equal_numbers_of_other_types_or_shapes__stay_apart() -> None:
    nodes = [node("Mul", ["x", "a"], ["p"]), node("Mul", ["x", "b"], ["q"]), node("Sub", ["p", "q"], ["y"])]
    graph = graph_of(nodes, {"x": (3,)}, ["y"], {"a": np.float32(2), "b": np.full(1, 2, np.float32)})
    assert not apply(common_subexpressions.run, graph)


def gated(flat: bool = False, bias: bool = False, zeros: bool = True, n: int = 6) -> tuple[list[Node], dict[str, Any]]:
    make: Any = op_class("MatMulNBits", "com.microsoft", 1)
    constants: dict[str, Any] = {}
    nodes = []
    for name in ("g", "u"):
        constants[f"{name}_w"] = RNG.integers(0, 256, (n, 2, 16)).astype(np.uint8)
        scales = RNG.uniform(0.5, 1.5, (n, 2)).astype(np.float32)
        constants[f"{name}_s"] = scales.reshape(-1) if flat else scales
        inputs = ["x", f"{name}_w", f"{name}_s"]
        if zeros:
            made = RNG.integers(0, 256, (n, 1)).astype(np.uint8)
            constants[f"{name}_z"] = made.reshape(-1) if flat else made
            inputs.append(f"{name}_z")
        if bias:
            constants[f"{name}_b"] = RNG.standard_normal(n).astype(np.float32)
            inputs += [""] * (5 - len(inputs)) + [f"{name}_b"]
        nodes.append(Node(make(K=40, N=n, block_size=32), tuple(inputs), (name,), name))
    nodes += [
        node("Sigmoid", ["g"], ["s"]),
        node("Mul", ["g", "s"], ["a"]),
        node("Mul", ["a", "u"], ["y"]),
    ]
    return nodes, constants


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("zeros", [True, False])
def test_pair_products__gate_and_values__are_one_product(flat: bool, zeros: bool) -> None:
    nodes, constants = gated(flat=flat, zeros=zeros)
    graph = graph_of(nodes, {"x": (2, 3, 40)}, ["y"], constants)
    fuse_elementwise.run(graph, Target())
    assert apply(pair_products.run, graph)
    assert [t for t in cleaned(graph) if t not in ("Concat", "Reshape")] == ["PairedProduct"]


def test_pair_products__bias_or_a_product_read_elsewhere__is_left_alone() -> None:
    nodes, constants = gated(bias=True)
    graph = graph_of(nodes, {"x": (3, 40)}, ["y"], constants)
    fuse_elementwise.run(graph, Target())
    assert not apply(pair_products.run, graph)
    nodes, constants = gated()
    graph = graph_of(nodes, {"x": (3, 40)}, ["y", "u"], constants)
    fuse_elementwise.run(graph, Target())
    assert not apply(pair_products.run, graph)

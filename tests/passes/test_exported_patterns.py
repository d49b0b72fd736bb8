"""Patterns as exporters write them: wide operands, windows, shapes, gates. Matches, and none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyruntime.ir import Node
from pyruntime.kernels import Target
from pyruntime.ops.registry import op_class
from pyruntime.passes.cleanup import common_subexpressions, drop_expand, simplify_shapes, unit_dims
from pyruntime.passes.decoding import pair_products
from pyruntime.passes.fusion import fuse_elementwise
from pyruntime.passes.layout import fuse_roll
from tests.passes.support import LAST, apply, cleaned, graph_of, ints, node, op_types

RNG = np.random.default_rng(3)


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


def test_simplify_shapes__shape_computed_from_sizes__is_a_constant() -> None:
    constants = {"at": ints(0), "rest": ints(-1)}
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "at"], ["n"]),
        node("Concat", ["n", "rest"], ["shape"], axis=0),
        node("Reshape", ["x", "shape"], ["y"]),
    ]
    graph = graph_of(nodes, {"x": (2, 3, 4)}, ["y"], constants)
    assert apply(simplify_shapes.run, graph)
    assert cleaned(graph) == ["Reshape"]


def test_simplify_shapes__nodes_that_change_nothing__go() -> None:
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
    assert apply(simplify_shapes.run, graph)
    assert cleaned(graph) == ["Relu"]


def test_simplify_shapes__what_changes_something__stays() -> None:
    constants = {"first": ints(-1), "end": ints(-LAST), "axis": ints(0), "step": ints(-1)}
    nodes = [node("Slice", ["x", "first", "end", "axis", "step"], ["a"]), node("Cast", ["a"], ["y"], to=10)]
    graph = graph_of(nodes, {"x": (3,)}, ["y"], constants)
    assert not apply(simplify_shapes.run, graph)


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

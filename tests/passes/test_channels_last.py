"""Convolutions between transpositions have their channels last; what a graph computes stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyruntime.ir import Array, DType, Node
from pyruntime.kernels import Target
from pyruntime.passes.layout import channels_last
from pyruntime.passes.pipeline import optimize
from tests.passes.support import apply, cleaned, evaluate, graph_of, ints, node

FIRST, LAST = (0, 3, 1, 2), (0, 2, 3, 1)


def floats(*shape: int, seed: int = 0) -> Array:
    return (np.random.default_rng(seed).standard_normal(shape) / 4).astype(np.float32)


def block(x: str, y: str, channels: int, constants: dict[str, Any], kernel: int = 3) -> list[Node]:
    """ConvNeXt's: a depthwise convolution, a norm and two products over the last dimension, what went in added."""
    side = kernel // 2
    constants |= {
        f"{y}_w": floats(channels, 1, kernel, kernel, seed=1),
        f"{y}_b": floats(channels, seed=2),
        f"{y}_scale": floats(channels, seed=3),
        f"{y}_shift": floats(channels, seed=4),
        f"{y}_up": floats(channels, 2 * channels, seed=5),
        f"{y}_down": floats(2 * channels, channels, seed=6),
    }
    return [
        node("Conv", [x, f"{y}_w", f"{y}_b"], [f"{y}_c"], group=channels, pads=(side,) * 4),
        node("Transpose", [f"{y}_c"], [f"{y}_l"], perm=LAST),
        node("LayerNormalization", [f"{y}_l", f"{y}_scale", f"{y}_shift"], [f"{y}_n"], axis=-1),
        node("MatMul", [f"{y}_n", f"{y}_up"], [f"{y}_u"]),
        node("Relu", [f"{y}_u"], [f"{y}_r"]),
        node("MatMul", [f"{y}_r", f"{y}_down"], [f"{y}_d"]),
        node("Transpose", [f"{y}_d"], [f"{y}_f"], perm=FIRST),
        node("Add", [x, f"{y}_f"], [y]),
    ]


def convnext(batch: int = 1) -> Any:
    """A stem, two blocks, windows that halve the picture, another block, the mean."""
    constants: dict[str, Any] = {
        "stem": floats(8, 3, 4, 4),
        "stem_b": floats(8, seed=1),
        "half": floats(16, 8, 2, 2),
        "axes": ints(-2, -1),
    }
    nodes = [
        node("Conv", ["x", "stem", "stem_b"], ["s"], strides=(4, 4)),
        *block("s", "a", 8, constants),
        *block("a", "b", 8, constants, 7),
        node("Conv", ["b", "half"], ["h"], strides=(2, 2)),
        *block("h", "c", 16, constants, 5),
        node("ReduceMean", ["c", "axes"], ["y"], keepdims=0),
    ]
    return graph_of(nodes, {"x": (batch, 3, 24, 32)}, ["y"], constants)


@pytest.mark.parametrize("batch", [1, 2])
def test_channels_last__blocks_of_convnext__only_patches_are_moved(batch: int) -> None:
    graph = convnext(batch)
    assert apply(channels_last.run, graph)
    left = [n for n in graph.nodes if n.op.op_type == "Transpose" and n.outputs[0] not in graph.static]
    cleaned(graph)
    moved = [n.name for n in graph.nodes if n in left]
    assert len(moved) == 2 and all(name.endswith(".patches") for name in moved)
    assert [n.op.op_type for n in graph.nodes].count("DepthwiseLast") == 3
    assert "Conv" not in cleaned(graph)


def test_optimize__blocks_of_convnext__additions_are_in_the_products() -> None:
    graph = convnext()
    feeds = {"x": floats(1, 3, 24, 32)}
    before = evaluate(graph, feeds)
    assert "channels_last" in [one.name for one in optimize(graph, Target()) if one.changed]
    assert "Add" not in cleaned(graph) and "Relu" not in cleaned(graph)
    np.testing.assert_allclose(evaluate(graph, feeds)[0], before[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "attributes",
    [
        {"pads": (1, 1, 1, 1)},
        {"pads": (0, 2, 1, 0), "strides": (2, 1)},
        {"dilations": (1, 2), "auto_pad": "SAME_UPPER"},
        {"auto_pad": "VALID", "strides": (1, 3)},
        {"auto_pad": "SAME_LOWER", "strides": (2, 2)},
    ],
)
def test_channels_last__depthwise_between_transpositions__one_node(attributes: dict[str, Any]) -> None:
    nodes = [
        node("Transpose", ["x"], ["a"], perm=FIRST),
        node("Conv", ["a", "w"], ["b"], group=4, **attributes),
        node("Transpose", ["b"], ["y"], perm=LAST),
    ]
    graph = graph_of(nodes, {"x": (2, 7, 9, 4)}, ["y"], {"w": floats(4, 1, 3, 3)})
    assert apply(channels_last.run, graph)
    names = [n.op.op_type for n in graph.nodes if n.outputs[0] not in graph.static]
    cleaned(graph)
    assert [n for n in names if n not in ("Transpose", "Reshape")] == ["DepthwiseLast"]
    assert not [n for n in graph.nodes if n.op.op_type == "Transpose" and n.outputs[0] not in graph.static]


def test_channels_last__pixels_in_one_dimension__as_segformer_has_them() -> None:
    """[B, H W, C], turned, seen as a picture, convolved, and back; the reduced keys by windows side by side."""
    constants: dict[str, Any] = {
        "picture": ints(2, 8, 6, 8),
        "row": ints(2, 8, -1),
        "w": floats(8, 1, 3, 3),
        "b": floats(8, seed=1),
        "r": floats(8, 8, 2, 2, seed=2),
        "rb": floats(8, seed=3),
    }
    nodes = [
        node("Transpose", ["x"], ["t"], perm=(0, 2, 1)),
        node("Reshape", ["t", "picture"], ["p"]),
        node("Conv", ["p", "w", "b"], ["c"], group=8, pads=(1, 1, 1, 1)),
        node("Reshape", ["c", "row"], ["cr"]),
        node("Transpose", ["cr"], ["y"], perm=(0, 2, 1)),
        node("Conv", ["p", "r", "rb"], ["k"], strides=(2, 2)),
        node("Reshape", ["k", "row"], ["kr"]),
        node("Transpose", ["kr"], ["z"], perm=(0, 2, 1)),
    ]
    graph = graph_of(nodes, {"x": (2, 48, 8)}, ["y", "z"], constants)
    assert apply(channels_last.run, graph)
    cleaned(graph)
    moving = [n.name for n in graph.nodes if n.op.op_type == "Transpose" and n.outputs[0] not in graph.static]
    assert len(moving) == 1 and moving[0].endswith(".patches")


def test_channels_last__sequence_of_a_conformer__pointwise_are_products() -> None:
    constants: dict[str, Any] = {
        "p": floats(8, 4, 1),
        "pb": floats(8, seed=1),
        "w": floats(8, 1, 5, seed=2),
        "scale": floats(8, 1, seed=3),
        "q": floats(4, 8, 1, seed=4),
    }
    nodes = [
        node("Transpose", ["x"], ["t"], perm=(0, 2, 1)),
        node("Conv", ["t", "p", "pb"], ["a"]),
        node("Conv", ["a", "w"], ["b"], group=8, pads=(2, 2)),
        node("Mul", ["b", "scale"], ["c"]),
        node("Sigmoid", ["c"], ["d"]),
        node("Mul", ["c", "d"], ["e"]),
        node("Conv", ["e", "q"], ["f"]),
        node("Transpose", ["f"], ["y"], perm=(0, 2, 1)),
    ]
    graph = graph_of(nodes, {"x": (3, 11, 4)}, ["y"], constants)
    assert apply(channels_last.run, graph)
    left = cleaned(graph)
    assert left.count("MatMul") == 2 and left.count("DepthwiseLast") == 1 and "Conv" not in left
    assert not [n for n in graph.nodes if n.op.op_type == "Transpose" and n.outputs[0] not in graph.static]


def test_channels_last__operands_without_spatial_extent__are_seen_with_channels_last() -> None:
    """A gate for each image and channel, computed while running, as squeeze and excitation has it."""
    nodes = [
        node("Transpose", ["x"], ["a"], perm=FIRST),
        node("Mul", ["a", "gate"], ["b"]),
        node("Add", ["b", "shift"], ["c"]),
        node("Transpose", ["c"], ["y"], perm=LAST),
    ]
    constants = {"shift": floats(1, 4, 1, 1)}
    graph = graph_of(nodes, {"x": (2, 3, 5, 4), "gate": (2, 4, 1, 1)}, ["y"], constants)
    assert apply(channels_last.run, graph)
    assert "Transpose" not in cleaned(graph)


def test_channels_last__values_read_in_both_layouts__turned_once() -> None:
    constants = {"w": floats(4, 1, 3, 3), "dense": floats(4, 4, 3, 3, seed=1)}
    nodes = [
        node("Transpose", ["x"], ["a"], perm=FIRST),
        node("Conv", ["a", "w"], ["b"], group=4, pads=(1,) * 4),
        node("Relu", ["b"], ["c"]),
        node("Transpose", ["c"], ["y"], perm=LAST),
        node("Conv", ["c", "dense"], ["z"], pads=(1,) * 4),
    ]
    graph = graph_of(nodes, {"x": (1, 6, 5, 4)}, ["y", "z", "c"], constants)
    assert apply(channels_last.run, graph)
    cleaned(graph)
    assert len([n for n in graph.nodes if n.op.op_type == "Transpose" and n.outputs[0] not in graph.static]) == 1


@pytest.mark.parametrize("case", ["first", "grouped", "padded", "multiplied", "odd", "unknown"])
def test_channels_last__nothing_to_save_or_no_kernel__left_alone(case: str) -> None:
    turned = [node("Transpose", ["x"], ["a"], perm=FIRST)]
    back = [node("Transpose", ["b"], ["y"], perm=LAST)]
    inputs, weights = {"x": (1, 6, 8, 4)}, floats(4, 1, 3, 3)
    attributes: dict[str, Any] = {"group": 4}
    if case == "first":  # channels first on both sides
        inputs, turned, back = {"a": (1, 4, 6, 8)}, [], [node("Relu", ["b"], ["y"])]
    elif case == "grouped":
        attributes, weights = {"group": 2}, floats(4, 2, 3, 3)
    elif case == "padded":  # patches with padding
        attributes, weights = {"strides": (2, 2), "pads": (2, 0, 0, 0)}, floats(4, 4, 2, 2)
    elif case == "multiplied":
        weights = floats(8, 1, 3, 3)
    elif case == "odd":  # channels that are no whole vec4
        inputs, weights, attributes = {"x": (1, 6, 8, 3)}, floats(3, 1, 3, 3), {"group": 3}
    else:
        inputs["w"] = (4, 1, 3, 3)
    nodes = [*turned, node("Conv", ["a", "w"], ["b"], **attributes), *back]
    graph = graph_of(nodes, inputs, ["y"], {} if case == "unknown" else {"w": weights})
    assert not apply(channels_last.run, graph)


def test_channels_last__halves__same_numbers() -> None:
    nodes = [
        node("Transpose", ["x"], ["a"], perm=FIRST),
        node("Conv", ["a", "w"], ["b"], group=4, pads=(1,) * 4),
        node("Transpose", ["b"], ["y"], perm=LAST),
    ]
    constants = {"w": floats(4, 1, 3, 3).astype(np.float16)}
    graph = graph_of(nodes, {"x": (1, 5, 5, 4)}, ["y"], constants, DType.FLOAT16)
    assert apply(channels_last.run, graph)
    assert "Conv" not in cleaned(graph)


def test_channels_last__one_layout_of_a_region_is_the_other_of_the_next__every_value_is_made() -> None:
    """With one spatial dimension both permutations are equal: what one region turns back another reads as turned."""
    nodes = [
        node("Relu", ["x"], ["a"]),
        node("Transpose", ["a"], ["b"], perm=(0, 2, 1)),
        node("Transpose", ["a"], ["c"], perm=(0, 2, 1)),
        node("GlobalAveragePool", ["b"], ["y"]),
        node("GlobalAveragePool", ["c"], ["z"]),
        node("Reshape", ["c", "shape"], ["w"]),
    ]
    graph = graph_of(nodes, {"x": (1, 4, 3)}, ["y", "z", "w"], {"shape": ints(1, 3, 4, 1)})
    apply(channels_last.run, graph)

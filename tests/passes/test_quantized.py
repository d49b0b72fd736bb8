"""Passes over quantised operators: a match, and graphs to be left alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyruntime.ir import DType, Node, TypedGraph
from pyruntime.kernels import Target
from pyruntime.passes.cleanup import dead_code
from pyruntime.passes.fusion import fuse_elementwise, fuse_epilogue
from pyruntime.passes.quantization import (
    merge_integer_products,
    move_quantization,
    packed_weights,
    quantization_steps,
    quantized_products,
    weights_channels_last,
)
from tests.passes.support import apply, graph_of, node, op_types

RNG = np.random.default_rng(3)
STEP, ZERO = np.array(0.05, np.float32), np.array(7, np.uint8)


def number(*shape: int) -> Any:
    return RNG.integers(-128, 128, shape).astype(np.int8)


def quantized(name: str) -> list[Node]:
    """x to bytes and back: `name`."""
    return [
        node("QuantizeLinear", ["x", "step", "zero"], [f"{name}.q"]),
        node("DequantizeLinear", [f"{name}.q", "step", "zero"], [name]),
    ]


CONSTANTS = {"step": STEP, "zero": ZERO, "w": number(6, 5), "s": np.linspace(0.01, 0.02, 5, dtype=np.float32)}


def test_quantized_products__matmul_of_dequantized__is_an_integer_product() -> None:
    nodes = [*quantized("a"), node("DequantizeLinear", ["w", "s"], ["b"], axis=1), node("MatMul", ["a", "b"], ["y"])]
    graph = graph_of(nodes, {"x": (4, 6)}, ["y"], CONSTANTS)
    assert apply(quantized_products.run, graph)
    dead_code.run(graph, Target())
    assert op_types(graph) == ["QuantizeLinear", "MatMulInteger", "Cast", "Mul"]


@pytest.mark.parametrize("axis", [0, 1])
def test_quantized_products__scales_along_k__stay(axis: int) -> None:
    """A scale a row of the weights is none of the sums."""
    constants = CONSTANTS | {"s": np.full(6 if axis == 0 else 5, 0.01, np.float32)}
    nodes = [*quantized("a"), node("DequantizeLinear", ["w", "s"], ["b"], axis=axis), node("MatMul", ["a", "b"], ["y"])]
    graph = graph_of(nodes, {"x": (4, 6)}, ["y"], constants)
    assert apply(quantized_products.run, graph) == (axis == 1)


def test_quantized_products__float_operand__stays() -> None:
    nodes = [node("DequantizeLinear", ["w", "s"], ["b"], axis=1), node("MatMul", ["x", "b"], ["y"])]
    assert not apply(quantized_products.run, graph_of(nodes, {"x": (4, 6)}, ["y"], CONSTANTS))


def test_packed_weights__columns_and_blocks__are_packed() -> None:
    nodes = [node("DequantizeLinear", ["w", "s"], ["b"], axis=1), node("MatMul", ["x", "b"], ["y"])]
    graph = graph_of(nodes, {"x": (4, 6)}, ["y"], CONSTANTS)
    assert apply(packed_weights.run, graph)
    dead_code.run(graph, Target())
    assert op_types(graph)[-1] == "MatMulNBits"


@pytest.mark.parametrize(
    ("scale", "attributes"),
    [
        (np.full(6, 0.01, np.float32), {"axis": 0}),
        (np.full((2, 5), 0.01, np.float32), {"axis": 0, "block_size": 3}),
        (np.full((6, 1), 0.01, np.float32), {"axis": 1, "block_size": 16}),
    ],
    ids=["rows", "short blocks", "blocks along n"],
)
def test_packed_weights__scales_no_packing_has__stay(scale: Any, attributes: dict[str, int]) -> None:
    nodes = [node("DequantizeLinear", ["w", "s"], ["b"], **attributes), node("MatMul", ["x", "b"], ["y"])]
    assert not apply(packed_weights.run, graph_of(nodes, {"x": (4, 6)}, ["y"], CONSTANTS | {"s": scale}))


def as_steps(graph: TypedGraph, target: Target) -> bool:
    """Both passes that quantization goes through."""
    moved = move_quantization.run(graph, target)
    return quantization_steps.run(graph, target) or moved


def test_quantization_steps__what_is_only_moved__stays_in_bytes() -> None:
    nodes = [*quantized("a"), node("Transpose", ["a"], ["t"]), node("QuantizeLinear", ["t", "step", "zero"], ["y"])]
    graph = graph_of(nodes, {"x": (4, 6)}, ["y"], CONSTANTS)
    assert apply(as_steps, graph)
    dead_code.run(graph, Target())
    assert op_types(graph) == ["Quantize", "Transpose"]
    assert graph.tensor("y").dtype is DType.UINT8


def test_quantization_steps__other_scale_after_the_move__is_quantized_anew() -> None:
    nodes = [*quantized("a"), node("Transpose", ["a"], ["t"]), node("QuantizeLinear", ["t", "other", "zero"], ["y"])]
    graph = graph_of(nodes, {"x": (4, 6)}, ["y"], CONSTANTS | {"other": np.array(0.1, np.float32)})
    assert apply(as_steps, graph)
    assert op_types(graph).count("Quantize") == 2


def test_quantization_steps__parts_of_a_concat__are_joined_as_bytes() -> None:
    nodes = [*quantized("a"), node("QuantizeLinear", ["x2", "other", "zero"], ["b.q"])]
    nodes += [node("DequantizeLinear", ["b.q", "other", "zero"], ["b"]), node("Concat", ["a", "b"], ["t"], axis=1)]
    nodes.append(node("QuantizeLinear", ["t", "step", "zero"], ["y"]))
    constants = CONSTANTS | {"other": np.array(0.1, np.float32)}
    graph = graph_of(nodes, {"x": (4, 6), "x2": (4, 3)}, ["y"], constants)
    assert apply(as_steps, graph)
    dead_code.run(graph, Target())
    assert op_types(graph) == ["Quantize", "Quantize", "Dequantize", "Identity", "Quantize", "Concat"]


def test_quantization_steps__no_quantisation__nothing_to_do() -> None:
    assert not apply(as_steps, graph_of([node("Relu", ["x"], ["y"])], {"x": (4, 6)}, ["y"]))


def test_fuse_epilogue__integer_product__is_quantized_by_its_kernel() -> None:
    nodes = [*quantized("a"), node("DequantizeLinear", ["w", "s"], ["b"], axis=1), node("MatMul", ["a", "b"], ["p"])]
    nodes += [node("Relu", ["p"], ["r"]), node("QuantizeLinear", ["r", "step", "zero"], ["y"])]
    graph = graph_of(nodes, {"x": (4, 6)}, ["y"], CONSTANTS)
    for one in (quantized_products, quantization_steps, dead_code, fuse_elementwise, fuse_epilogue):
        assert apply(one.run, graph)
    assert op_types(graph) == ["Quantize", "WithEpilogue"]


def projections(count: int) -> tuple[list[Node], dict[str, Any]]:
    """Products of one quantised input, each scaled, biased and cut into heads."""
    dynamic = node("DynamicQuantizeLinear", ["x"], ["q", "xs", "xz"])
    nodes, constants = [dynamic], {"heads": np.array([4, 2, 4], np.int64)}
    for i in range(count):
        constants |= {f"w{i}": number(6, 8), f"s{i}": np.array(0.01 * (i + 1), np.float32)}
        constants |= {f"b{i}": RNG.standard_normal(8).astype(np.float32)}
        nodes += [
            node("Mul", ["xs", f"s{i}"], [f"scale{i}"]),
            node("MatMulInteger", ["q", f"w{i}", "xz"], [f"sum{i}"]),
            node("Cast", [f"sum{i}"], [f"real{i}"], to=DType.FLOAT.code),
            node("Mul", [f"real{i}", f"scale{i}"], [f"scaled{i}"]),
            node("Add", [f"b{i}", f"scaled{i}"], [f"p{i}"]),
            node("Reshape", [f"p{i}", "heads"], [f"h{i}"]),
            node("Transpose", [f"h{i}"], [f"y{i}"], perm=(1, 0, 2)),
        ]
    return nodes, constants


def test_merge_integer_products__query_key_value__are_one() -> None:
    nodes, constants = projections(3)
    graph = graph_of(nodes, {"x": (4, 6)}, ["y0", "y1", "y2"], constants)
    assert apply(merge_integer_products.run, graph)
    assert op_types(graph).count("MatMulInteger") == 1


def test_merge_integer_products__one_alone__stays() -> None:
    nodes, constants = projections(1)
    assert not apply(merge_integer_products.run, graph_of(nodes, {"x": (4, 6)}, ["y0"], constants))


def convolutions(kernel: int, *names: str) -> list[Node]:
    """ConvInteger of x, quantized, by each of the weights named."""
    made = [node("Cast", ["x"], ["q"], to=DType.UINT8.code)]
    return [
        *made,
        *(node("ConvInteger", ["q", w, "zero"], [f"y{i}"], pads=(kernel // 2,) * 4) for i, w in enumerate(names)),
    ]


def test_weights_channels_last__convolutions_of_one_constant_on_a_processor__read_it_turned_once() -> None:
    graph = graph_of(
        convolutions(3, "w", "w"), {"x": (2, 5, 9, 8)}, ["y0", "y1"], {"w": number(6, 5, 3, 3), "zero": ZERO}
    )
    assert apply(lambda g, _: weights_channels_last.run(g, Target(vendor="google")), graph)
    assert op_types(graph) == ["Cast", "ChannelsLast", "ConvIntegerChannelsLast", "ConvIntegerChannelsLast"]
    turned = graph.tensor(graph.nodes[1].outputs[0])
    assert turned.shape == (6, 3, 3, 8)
    np.testing.assert_array_equal(turned.value()[:, 1, 2, 4], graph.tensor("w").value()[:, 4, 1, 2])
    assert not turned.value()[..., 5:].any()


@pytest.mark.parametrize(
    ("kernel", "vendor", "disabled"), [(1, "google", ()), (3, "nvidia", ()), (3, "google", "conv_int8_direct")]
)
def test_weights_channels_last__pointwise_or_other_kernel__stay(kernel: int, vendor: str, disabled: Any) -> None:
    constants = {"w": number(6, 5, kernel, kernel), "zero": ZERO}
    graph = graph_of(convolutions(kernel, "w"), {"x": (2, 5, 9, 8)}, ["y0"], constants)
    target = Target(vendor=vendor, disabled=frozenset({disabled} if disabled else ()))
    assert not apply(lambda g, _: weights_channels_last.run(g, target), graph)


def test_weights_channels_last__weights_that_come_with_a_run__stay() -> None:
    nodes = [*convolutions(3, "w"), node("Cast", ["v"], ["w"], to=DType.INT8.code)]
    graph = graph_of([nodes[0], nodes[2], nodes[1]], {"x": (2, 5, 9, 8), "v": (6, 5, 3, 3)}, ["y0"], {"zero": ZERO})
    assert not apply(lambda g, _: weights_channels_last.run(g, Target(vendor="google")), graph)


def test_weights_channels_last__qlinear_conv__keeps_its_scales() -> None:
    constants = {"w": number(6, 5, 3, 3), "step": STEP, "zero": ZERO, "s": np.linspace(0.01, 0.02, 6, dtype=np.float32)}
    constants |= {"zeros": np.zeros(6, np.int8), "bias": RNG.integers(-99, 99, 6).astype(np.int32)}
    names = ["q", "step", "zero", "w", "s", "zeros", "step", "zero", "bias"]
    nodes = [node("QuantizeLinear", ["x", "step", "zero"], ["q"]), node("QLinearConv", names, ["y"])]
    graph = graph_of(nodes, {"x": (2, 5, 9, 8)}, ["y"], constants)
    assert apply(lambda g, _: weights_channels_last.run(g, Target(vendor="google")), graph)
    assert op_types(graph) == ["QuantizeLinear", "ChannelsLast", "QLinearConvChannelsLast"]

"""Fusion of elementwise chains, tails, norms, projections, attention: a match, and graphs to be left alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from pyruntime.ir import DType, Node, TypedGraph
from pyruntime.kernels import Limits, Target
from pyruntime.ops.fused.with_epilogue import WithEpilogue
from pyruntime.passes.cleanup import dead_code
from pyruntime.passes.fusion import (
    fuse_attention,
    fuse_elementwise,
    fuse_epilogue,
    fuse_group_norm,
    fuse_norms,
    fuse_product_norm,
    fuse_skip_norm,
    merge_products,
)
from tests.passes.support import apply, graph_of, ints, node, op_types

RNG = np.random.default_rng(7)


def weights(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def scalar(value: float) -> np.ndarray:
    return np.array(value, np.float32)


def test_fuse_elementwise__gelu_as_torch_writes_it__is_one_kernel_of_one_input() -> None:
    nodes = [
        node("Div", ["x", "root2"], ["a"]),
        node("Erf", ["a"], ["b"]),
        node("Add", ["b", "one"], ["c"]),
        node("Mul", ["half", "c"], ["d"]),
        node("Mul", ["x", "d"], ["y"]),
    ]
    constants = {"root2": scalar(math.sqrt(2)), "one": scalar(1), "half": scalar(0.5)}
    graph = graph_of(nodes, {"x": (4, 5)}, ["y"], constants)
    assert apply(fuse_elementwise.run, graph)
    assert op_types(graph) == ["FusedElementwise"]
    assert graph.nodes[0].inputs == ("x",)


def test_fuse_elementwise__value_read_elsewhere__is_not_recomputed() -> None:
    nodes = [node("Exp", ["x"], ["a"]), node("Neg", ["a"], ["b"]), node("MatMul", ["a", "b"], ["y"])]
    assert not apply(fuse_elementwise.run, graph_of(nodes, {"x": (4, 4)}, ["y"]))


def test_fuse_elementwise__smaller_producer__is_not_recomputed_for_every_element() -> None:
    nodes = [node("Exp", ["v"], ["a"]), node("Add", ["x", "a"], ["y"])]
    assert not apply(fuse_elementwise.run, graph_of(nodes, {"x": (4, 5), "v": (5,)}, ["y"]))


def test_fuse_elementwise__clip_with_bounds__takes_them_as_numbers() -> None:
    nodes = [node("Neg", ["x"], ["a"]), node("Clip", ["a", "low", "high"], ["y"])]
    graph = graph_of(nodes, {"x": (7,)}, ["y"], {"low": scalar(0), "high": scalar(0.5)})
    assert apply(fuse_elementwise.run, graph)
    assert graph.nodes[0].inputs == ("x",)


@pytest.mark.parametrize("turned", [("Add", ["z", "c"], ["c", "z"]), ("Mul", ["half", "c"], ["c", "half"])])
def test_fuse_epilogue__operands_of_sums_and_products_in_either_order__one_text(
    turned: tuple[str, list[str], list[str]],
) -> None:
    op_type, *orders = turned
    texts = []
    for inputs in orders:
        nodes = [node("Conv", ["x", "w"], ["c"]), node(op_type, inputs, ["a"]), node("Relu", ["a"], ["y"])]
        constants = {"w": weights(3, 2, 1, 1), "half": scalar(0.5)}
        graph = graph_of(nodes, {"x": (1, 2, 5, 5), "z": (1, 3, 5, 5)}, ["y"], constants)
        assert apply(fuse_elementwise.run, graph) and apply(fuse_epilogue.run, graph)
        op = graph.nodes[0].op
        assert isinstance(op, WithEpilogue)
        texts.append([d.kernel.wgsl() for d in op.lower(Target(), *(graph.tensor(n) for n in graph.nodes[0].inputs))])
    assert texts[0] == texts[1]


def test_fuse_epilogue__conv_bias_relu_residual__is_one_node() -> None:
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], pads=(1, 1, 1, 1)),
        node("Add", ["c", "z"], ["a"]),
        node("Relu", ["a"], ["y"]),
    ]
    constants = {"w": weights(3, 2, 3, 3), "b": weights(3)}
    graph = graph_of(nodes, {"x": (1, 2, 5, 5), "z": (1, 3, 5, 5)}, ["y"], constants)
    assert apply(fuse_elementwise.run, graph)
    assert apply(fuse_epilogue.run, graph)
    assert op_types(graph) == ["WithEpilogue"]


def test_fuse_epilogue__gemm__its_c_joins_the_chain() -> None:
    nodes = [node("Gemm", ["x", "w", "c"], ["g"]), node("Tanh", ["g"], ["y"])]
    graph = graph_of(nodes, {"x": (4, 3)}, ["y"], {"w": weights(3, 6), "c": weights(6)})
    assert apply(fuse_epilogue.run, graph)
    assert op_types(graph) == ["WithEpilogue"]
    assert graph.nodes[0].inputs == ("x", "w", "c")


@pytest.mark.parametrize(("chain", "stores"), [("Relu", 8), ("Tanh", 1), ("Sigmoid", 1), ("Erf", 1)])
def test_fuse_epilogue__long_functions__are_there_once_and_not_for_each_result(chain: str, stores: int) -> None:
    nodes = [node("MatMul", ["x", "w"], ["p"]), node(chain, ["p"], ["y"])]
    graph = graph_of(nodes, {"x": (192, 256)}, ["y"], {"w": weights(256, 1536)})
    assert apply(fuse_epilogue.run, graph)
    (fused,) = graph.nodes
    limits = Limits(storage_buffers=16, workgroup_bytes=49152, invocations=1024, workgroup_x=1024)
    target = Target(limits, vendor="nvidia", disabled=frozenset({"matmul_slices", "matmul_split", "fallback_kernels"}))
    (dispatch,) = fused.op.lower(target, *map(graph.tensor, fused.inputs))  # type: ignore[attr-defined]
    assert dispatch.kernel.name.startswith("matmul_m1_nn")
    assert dispatch.kernel.wgsl().count("  put(") == stores


@pytest.mark.parametrize("inputs", [["r", "g"], ["g", "r"]])
def test_fuse_epilogue__gemm_without_c_on_either_side__keeps_the_order(inputs: list[str]) -> None:
    nodes = [node("Gemm", ["x", "w"], ["g"]), node("Sub", inputs, ["y"])]
    graph = graph_of(nodes, {"x": (4, 3), "r": (4, 6)}, ["y"], {"w": weights(3, 6)})
    assert apply(fuse_epilogue.run, graph)
    assert op_types(graph) == ["WithEpilogue"]


@pytest.mark.parametrize("attributes", [{"alpha": 0.5}, {"beta": 2.0}])
def test_fuse_epilogue__scaled_gemm__stays(attributes: dict[str, float]) -> None:
    nodes = [node("Gemm", ["x", "w", "c"], ["g"], **attributes), node("Tanh", ["g"], ["y"])]
    graph = graph_of(nodes, {"x": (4, 3)}, ["y"], {"w": weights(3, 6), "c": weights(6)})
    assert not apply(fuse_epilogue.run, graph)


def test_fuse_epilogue__product_read_twice__stays() -> None:
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Relu", ["p"], ["a"]), node("Concat", ["a", "p"], ["y"], axis=0)]
    assert not apply(fuse_epilogue.run, graph_of(nodes, {"x": (4, 3)}, ["y"], {"w": weights(3, 6)}))


def rms_norm(mean_axis: int = -1) -> list[Node]:
    return [
        node("Pow", ["x", "two"], ["sq"]),
        node("ReduceMean", ["sq", "axes"], ["m"], keepdims=1),
        node("Add", ["m", "eps"], ["me"]),
        node("Sqrt", ["me"], ["root"]),
        node("Reciprocal", ["root"], ["inv"]),
        node("Mul", ["x", "inv"], ["n"]),
        node("Mul", ["n", "w"], ["y"]),
    ]


def rms_constants(axis: int) -> dict[str, np.ndarray]:
    return {"two": scalar(2), "axes": np.array([axis]), "eps": scalar(1e-5), "w": weights(8)}


def test_fuse_norms__rms_written_out__becomes_one_operator() -> None:
    graph = graph_of(rms_norm(), {"x": (2, 3, 8)}, ["y"], rms_constants(-1))
    assert apply(fuse_norms.run, graph)
    assert apply(dead_code.run, graph)
    assert op_types(graph) == ["RMSNormalization"]


def test_fuse_norms__mean_over_another_axis__stays() -> None:
    graph = graph_of(rms_norm(), {"x": (2, 8, 8)}, ["y"], rms_constants(1))
    assert not apply(fuse_norms.run, graph)


def test_fuse_norms__layer_norm_written_out__becomes_one_operator() -> None:
    nodes = [
        node("ReduceMean", ["x", "axes"], ["mean"]),
        node("Sub", ["x", "mean"], ["d"]),
        node("Pow", ["d", "two"], ["sq"]),
        node("ReduceMean", ["sq", "axes"], ["var"]),
        node("Add", ["var", "eps"], ["ve"]),
        node("Sqrt", ["ve"], ["root"]),
        node("Div", ["d", "root"], ["n"]),
        node("Mul", ["n", "w"], ["s"]),
        node("Add", ["s", "b"], ["y"]),
    ]
    graph = graph_of(nodes, {"x": (2, 3, 8)}, ["y"], rms_constants(-1) | {"b": weights(8)})
    assert apply(fuse_norms.run, graph)
    assert apply(dead_code.run, graph)
    assert op_types(graph) == ["LayerNormalization"]


HEADS, LENGTH, SIZE = 2, 5, 4
WIDTH = HEADS * SIZE


def heads(name: str, constants: dict[str, np.ndarray], bias: bool) -> list[Node]:
    constants[f"w{name}"] = weights(WIDTH, WIDTH)
    made = [node("MatMul", ["x", f"w{name}"], [f"{name}_product"])]
    last = f"{name}_product"
    if bias:
        constants[f"b{name}"] = weights(WIDTH)
        made.append(node("Add", [last, f"b{name}"], [f"{name}_biased"]))
        last = f"{name}_biased"
    made.append(node("Reshape", [last, "split"], [f"{name}_split"]))
    made.append(node("Transpose", [f"{name}_split"], [name], perm=(0, 2, 1, 3)))
    return made


def attention(masked: bool = True, safe: bool = True, scale: str = "Mul") -> TypedGraph:
    """Self-attention as torch exports it; the key's projection has no bias, as in whisper."""
    constants: dict[str, np.ndarray] = {
        "split": np.array([1, LENGTH, HEADS, SIZE]),
        "join": np.array([1, LENGTH, WIDTH]),
        "scale": scalar(0.5 if scale == "Mul" else 2.0),
        "zero": scalar(0),
        "mask": np.triu(np.full((LENGTH, LENGTH), -1e9, np.float32), 1)[None, None],
    }
    nodes = [*heads("q", constants, True), *heads("k", constants, False), *heads("v", constants, True)]
    nodes += [
        node("Transpose", ["k"], ["kt"], perm=(0, 1, 3, 2)),
        node("MatMul", ["q", "kt"], ["raw"]),
        node(scale, ["raw", "scale"], ["scores"]),
    ]
    last = "scores"
    if masked:
        nodes.append(node("Add", [last, "mask"], ["masked"]))
        last = "masked"
    nodes.append(node("Softmax", [last], ["p"]))
    last = "p"
    if safe:
        nodes += [node("IsNaN", ["p"], ["nan"]), node("Where", ["nan", "zero", "p"], ["safe"])]
        last = "safe"
    nodes += [
        node("MatMul", [last, "v"], ["o"]),
        node("Transpose", ["o"], ["ot"], perm=(0, 2, 1, 3)),
        node("Reshape", ["ot", "join"], ["y"]),
    ]
    return graph_of(nodes, {"x": (1, LENGTH, WIDTH)}, ["y"], constants)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("safe", [False, True])
@pytest.mark.parametrize("scale", ["Mul", "Div"])
def test_fuse_attention__torch_pattern__is_one_kernel(masked: bool, safe: bool, scale: str) -> None:
    graph = attention(masked, safe, scale)
    assert apply(fuse_attention.run, graph)
    assert apply(dead_code.run, graph)
    left = op_types(graph)
    assert left.count("FusedAttention") == 1
    assert not {"Softmax", "Transpose"} & set(left)


def test_merge_products__projections_of_attention__become_one_product_read_as_views() -> None:
    graph = attention()
    assert apply(merge_products.run, graph)
    assert op_types(graph).count("MatMul") == 3
    assert apply(fuse_attention.run, graph)
    assert apply(dead_code.run, graph)
    assert [t for t in op_types(graph) if t not in ("Concat",)] == ["MatMul", "Add", "FusedAttention"]


@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("biases", [(True, True), (True, False)])
def test_merge_products__projections_as_gemm__become_one(turned: int, biases: tuple[bool, bool]) -> None:
    nodes: list[Node] = []
    constants: dict[str, Any] = {}
    for i, biased in enumerate(biases):  # of 8 and 16 columns: the second has four heads
        width = 8 * (i + 1)
        constants |= {f"w{i}": weights(*((width, 6) if turned else (6, width))), f"c{i}": weights(width)}
        constants[f"heads{i}"] = ints(2, 3, 2 * (i + 1), 4)
        inputs = ["x", f"w{i}", *([f"c{i}"] if biased else [])]
        nodes += [
            node("Gemm", inputs, [f"p{i}"], transB=turned),
            node("Reshape", [f"p{i}", f"heads{i}"], [f"h{i}"]),
            node("Transpose", [f"h{i}"], [f"y{i}"], perm=(0, 2, 1, 3)),
        ]
    graph = graph_of(nodes, {"x": (6, 6)}, ["y0", "y1"], constants)
    assert apply(merge_products.run, graph)
    assert op_types(graph).count("Gemm") == 1


@pytest.mark.parametrize("other", [{"alpha": 0.5}, {"beta": 2.0}, {"transA": 1}, {"transB": 1}])
def test_merge_products__gemm_unlike_the_other__stays(other: dict[str, Any]) -> None:
    nodes: list[Node] = []
    for i, given in enumerate(({}, other)):
        nodes += [
            node("Gemm", ["x", "w", "c"], [f"p{i}"], **given),
            node("Reshape", [f"p{i}", "heads"], [f"h{i}"]),
            node("Transpose", [f"h{i}"], [f"y{i}"], perm=(0, 2, 1, 3)),
        ]
    constants = {"w": weights(8, 8), "c": weights(8), "heads": ints(2, 4, 2, 4)}
    graph = graph_of(nodes, {"x": (8, 8)}, ["y0", "y1"], constants)
    assert not apply(merge_products.run, graph)


def test_merge_products__products_that_lead_elsewhere__stay() -> None:
    nodes = [node("MatMul", ["x", "a"], ["p"]), node("MatMul", ["x", "b"], ["q"]), node("Mul", ["p", "q"], ["y"])]
    graph = graph_of(nodes, {"x": (3, 4)}, ["y"], {"a": weights(4, 4), "b": weights(4, 4)})
    assert not apply(merge_products.run, graph)


def test_fuse_attention__softmax_over_another_axis__stays() -> None:
    nodes = [
        node("MatMul", ["q", "k"], ["s"]),
        node("Softmax", ["s"], ["p"], axis=1),
        node("MatMul", ["p", "v"], ["y"]),
    ]
    graph = graph_of(nodes, {"q": (2, 3, 4), "k": (2, 4, 3), "v": (2, 3, 4)}, ["y"])
    assert not apply(fuse_attention.run, graph)


def test_fuse_attention__weights_are_an_output_too__stays() -> None:
    nodes = [node("MatMul", ["q", "k"], ["s"]), node("Softmax", ["s"], ["p"]), node("MatMul", ["p", "v"], ["y"])]
    graph = graph_of(nodes, {"q": (2, 3, 4), "k": (2, 4, 3), "v": (2, 3, 4)}, ["y", "p"])
    assert not apply(fuse_attention.run, graph)


def test_fuse_attention__rank_three__batches_are_heads() -> None:
    nodes = [node("MatMul", ["q", "k"], ["s"]), node("Softmax", ["s"], ["p"]), node("MatMul", ["p", "v"], ["y"])]
    graph = graph_of(nodes, {"q": (2, 3, 4), "k": (2, 4, 5), "v": (2, 5, 4)}, ["y"])
    assert apply(fuse_attention.run, graph)


def test_fuse_epilogue__producer_whose_first_output_is_not_read__stays() -> None:
    nodes = [node("Split", ["x"], ["unread", "a"], axis=0, num_outputs=2), node("Relu", ["a"], ["y"])]
    assert not apply(fuse_epilogue.run, graph_of(nodes, {"x": (2, 3)}, ["y"]))


def residual_and_norm(norm: str = "LayerNormalization", **attributes: Any) -> list[Node]:
    return [
        node("MatMul", ["x", "w"], ["p"]),
        node("Add", ["p", "z"], ["a"]),
        node(norm, ["a", "s", "b"] if norm == "LayerNormalization" else ["a", "s"], ["y"], **attributes),
    ]


PRODUCT_NORM = {"w": weights(3, 8), "s": weights(8), "b": weights(8)}


@pytest.mark.parametrize("norm", ["LayerNormalization", "RMSNormalization"])
@pytest.mark.parametrize("outputs", [["y"], ["y", "a"]])
def test_fuse_product_norm__product_residual_norm__is_one_node(norm: str, outputs: list[str]) -> None:
    graph = graph_of(residual_and_norm(norm), {"x": (2, 4, 3), "z": (2, 4, 8)}, outputs, PRODUCT_NORM)
    assert apply(fuse_epilogue.run, graph)
    assert apply(fuse_product_norm.run, graph)
    assert op_types(graph) == ["WithNorm"]
    assert graph.nodes[0].op.wants(1) == (len(outputs) == 2)  # type: ignore[attr-defined]


def test_fuse_product_norm__float16__is_one_node() -> None:
    constants = {name: value.astype(np.float16) for name, value in PRODUCT_NORM.items()}
    graph = graph_of(residual_and_norm(), {"x": (2, 4, 3), "z": (2, 4, 8)}, ["y"], constants, DType.FLOAT16)
    assert apply(fuse_epilogue.run, graph)
    assert apply(fuse_product_norm.run, graph)
    assert op_types(graph) == ["WithNorm"]


@pytest.mark.parametrize("outputs", [["y"], ["y", "r"], ["y", "a"]])
def test_fuse_product_norm__reshape_in_between__moves_after(outputs: list[str]) -> None:
    nodes = residual_and_norm()
    nodes[2:] = [
        node("Reshape", ["a", "shape"], ["r"]),
        node("LayerNormalization", ["r", "s", "b"], ["y"]),
    ]
    constants = PRODUCT_NORM | {"shape": np.array([2, 4, 8])}
    graph = graph_of(nodes, {"x": (8, 3), "z": (8, 8)}, outputs, constants)
    assert apply(fuse_epilogue.run, graph)
    assert apply(fuse_product_norm.run, graph)
    assert op_types(graph) == ["WithNorm", "Reshape", "Reshape"][: 3 if "r" in outputs or "a" in outputs else 2]


def test_fuse_product_norm__other_axis_or_no_product__stays() -> None:
    graph = graph_of(residual_and_norm(axis=1), {"x": (2, 4, 3), "z": (2, 4, 8)}, ["y"], PRODUCT_NORM)
    assert apply(fuse_epilogue.run, graph)
    assert not apply(fuse_product_norm.run, graph)
    alone = [node("Add", ["x", "z"], ["a"]), node("LayerNormalization", ["a", "s", "b"], ["y"])]
    assert not apply(fuse_product_norm.run, graph_of(alone, {"x": (4, 8), "z": (4, 8)}, ["y"], PRODUCT_NORM))


def test_fuse_product_norm__scale_that_is_computed__stays() -> None:
    nodes = [*residual_and_norm()[:2], node("LayerNormalization", ["a", "t", "b"], ["y"])]
    graph = graph_of(nodes, {"x": (4, 3), "z": (4, 8), "t": (8,)}, ["y"], PRODUCT_NORM)
    assert apply(fuse_epilogue.run, graph)
    assert not apply(fuse_product_norm.run, graph)


def group_norm() -> tuple[list[Node], dict[str, np.ndarray]]:
    nodes = [
        node("Reshape", ["x", "grouped"], ["g"]),
        node("InstanceNormalization", ["g", "ones", "zeros"], ["n"]),
        node("Reshape", ["n", "whole"], ["r"]),
        node("Mul", ["r", "w"], ["m"]),
        node("Add", ["m", "b"], ["y"]),
    ]
    constants = {
        "grouped": np.array([2, 3, -1]),
        "whole": np.array([2, 6, 4, 5]),
        "ones": np.ones(3, np.float32),
        "zeros": np.zeros(3, np.float32),
        "w": weights(6, 1, 1),
        "b": weights(6, 1, 1),
    }
    return nodes, constants


@pytest.mark.parametrize("steps", [4, 5])
def test_fuse_group_norm__as_torch_writes_it__becomes_one_operator(steps: int) -> None:
    nodes, constants = group_norm()
    graph = graph_of(nodes[:steps], {"x": (2, 6, 4, 5)}, ["m" if steps == 4 else "y"], constants)
    assert apply(fuse_group_norm.run, graph)
    assert apply(dead_code.run, graph)
    assert op_types(graph) == ["GroupNormalization"]


def test_fuse_group_norm__weights_in_the_instance_norm_or_a_value_read_elsewhere__stays() -> None:
    nodes, constants = group_norm()
    other = constants | {"ones": np.full(3, 2, np.float32)}
    assert not apply(fuse_group_norm.run, graph_of(nodes, {"x": (2, 6, 4, 5)}, ["y"], other))
    assert not apply(fuse_group_norm.run, graph_of(nodes, {"x": (2, 6, 4, 5)}, ["y", "r"], constants))
    rows = constants | {"w": weights(5)}
    assert not apply(fuse_group_norm.run, graph_of(nodes, {"x": (2, 6, 4, 5)}, ["y"], rows))


NORMS = {"LayerNormalization": ["t", "g", "b"], "RMSNormalization": ["t", "g"]}


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("skip", [(2, 3, 8), (1, 3, 8), (3, 8), (8,)])
@pytest.mark.parametrize("outputs", [["y"], ["y", "t"]])
def test_fuse_skip_norm__sum_then_norm__is_one_node(norm: str, skip: tuple[int, ...], outputs: list[str]) -> None:
    nodes = [node("Add", ["s", "x"], ["t"]), node(norm, NORMS[norm], ["y"])]
    graph = graph_of(nodes, {"x": (2, 3, 8), "s": skip}, outputs, {"g": weights(8), "b": weights(8)})
    assert apply(fuse_skip_norm.run, graph)
    assert op_types(graph) == ["SkipNorm"]


def test_fuse_skip_norm__bias_and_residual__is_one_node_that_keeps_the_sum() -> None:
    nodes = [
        node("Add", ["x", "c"], ["a"]),
        node("Add", ["a", "s"], ["t"]),
        node("LayerNormalization", ["t", "g", "b"], ["y"]),
        node("Mul", ["t", "y"], ["z"]),
    ]
    constants = {"g": weights(8), "b": weights(8), "c": weights(8)}
    graph = graph_of(nodes, {"x": (2, 3, 8), "s": (2, 3, 8)}, ["z"], constants)
    assert apply(fuse_elementwise.run, graph)
    assert apply(fuse_skip_norm.run, graph)
    assert op_types(graph) == ["SkipNorm", "Mul"]


@pytest.mark.parametrize(
    ("first", "scale"),
    [
        (node("Add", ["x", "x"], ["t"]), "g"),
        (node("Mul", ["x", "s"], ["t"]), "g"),
        (node("Add", ["x", "column"], ["t"]), "g"),
        (node("Add", ["x", "one"], ["t"]), "g"),
        (node("Add", ["x", "s"], ["t"]), "computed"),
        (node("Add", ["x", "s"], ["t"]), "wide"),
    ],
)
def test_fuse_skip_norm__anything_else__stays(first: Node, scale: str) -> None:
    nodes = [node("Neg", ["v"], ["computed"]), first, node("RMSNormalization", ["t", scale], ["y"])]
    inputs = {"x": (2, 3, 8), "s": (2, 3, 8), "column": (3, 1), "v": (8,)}
    graph = graph_of(nodes, inputs, ["y"], {"g": weights(8), "wide": weights(3, 8), "one": scalar(1)})
    assert not apply(fuse_skip_norm.run, graph)

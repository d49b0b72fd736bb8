"""dead_code, common_subexpressions, batchnorm_to_affine, sink_reshape, small_powers: a match, and
graphs they must leave alone."""

from __future__ import annotations

import numpy as np
import pytest

from pyruntime.compiler.build import build_plan
from pyruntime.ir import Array, DType
from pyruntime.kernels import Target
from pyruntime.ops.base import Op
from pyruntime.passes.cleanup import common_subexpressions, dead_code, small_powers
from pyruntime.passes.fusion import batchnorm_to_affine
from pyruntime.passes.layout import sink_reshape
from tests.passes.support import apply, graph_of, node, op_types


def test_dead_code__unread_chain__is_removed() -> None:
    nodes = [node("Relu", ["x"], ["y"]), node("Exp", ["x"], ["a"]), node("Neg", ["a"], ["b"])]
    graph = graph_of(nodes, {"x": (3,)}, ["y"])
    assert apply(dead_code.run, graph)
    assert op_types(graph) == ["Relu"]


def test_dead_code__everything_read__changes_nothing() -> None:
    graph = graph_of([node("Exp", ["x"], ["a"]), node("Neg", ["a"], ["y"])], {"x": (3,)}, ["y"])
    assert not apply(dead_code.run, graph)


def test_dead_code__named_outputs_without_consumers__lose_their_names() -> None:
    nodes = [
        node("LSTM", ["x", "w", "r"], ["a", "h", "c"], hidden_size=2),
        node("Squeeze", ["h"], ["y"]),
        node("MaxPool", ["z"], ["p", "indices"], kernel_shape=[2, 2]),
    ]
    shapes = {"x": (4, 1, 3), "w": (1, 8, 3), "r": (1, 8, 2), "z": (1, 1, 4, 4)}
    graph = graph_of(nodes, shapes, ["y", "p"])
    assert apply(dead_code.run, graph)
    outputs = {n.op.op_type: (n.outputs, n.op.present) for n in graph.nodes if isinstance(n.op, Op)}
    assert outputs["LSTM"] == (("", "h", ""), (False, True, False))
    assert outputs["MaxPool"] == (("p", ""), (True, False))
    assert not apply(dead_code.run, graph)


def test_dead_code__attention_whose_scores_are_not_read__does_not_make_them() -> None:
    nodes = [node("Attention", ["q", "q", "q"], ["y", "k", "v", "scores"], q_num_heads=2, kv_num_heads=2)]
    graph = graph_of(nodes, {"q": (1, 4, 8)}, ["y"])
    assert apply(dead_code.run, graph)
    few = len(build_plan(graph, Target()).commands)
    assert few == 1


def test_dead_code__outputs_that_say_what_the_node_is__stay_named() -> None:
    parts = [node("Split", ["x"], ["a", "b"], axis=0), node("Relu", ["b"], ["y"])]
    assert not apply(dead_code.run, graph_of(parts, {"x": (4, 3)}, ["y"]))


def test_common_subexpressions__twins__are_computed_once() -> None:
    nodes = [node("Exp", ["x"], ["a"]), node("Exp", ["x"], ["b"]), node("Add", ["a", "b"], ["y"])]
    graph = graph_of(nodes, {"x": (3,)}, ["y"])
    assert apply(common_subexpressions.run, graph)
    assert op_types(graph) == ["Exp", "Add"]


def test_common_subexpressions__other_attributes__are_kept_apart() -> None:
    nodes = [
        node("LeakyRelu", ["x"], ["a"], alpha=0.1),
        node("LeakyRelu", ["x"], ["b"], alpha=0.2),
        node("Add", ["a", "b"], ["y"]),
    ]
    assert not apply(common_subexpressions.run, graph_of(nodes, {"x": (3,)}, ["y"]))


def test_common_subexpressions__two_graph_outputs__both_stay() -> None:
    graph = graph_of([node("Exp", ["x"], ["a"]), node("Exp", ["x"], ["b"])], {"x": (3,)}, ["a", "b"])
    assert not apply(common_subexpressions.run, graph)


STATISTICS = {
    "scale": np.array([1.5, -0.5], np.float32),
    "bias": np.array([0.1, 0.2], np.float32),
    "mean": np.array([0.3, -0.4], np.float32),
    "var": np.array([2.0, 0.25], np.float32),
}


def test_batchnorm__constant_statistics__becomes_multiply_and_add() -> None:
    nodes = [node("BatchNormalization", ["x", *STATISTICS], ["y"], epsilon=1e-3)]
    graph = graph_of(nodes, {"x": (2, 2, 3, 3)}, ["y"], STATISTICS)
    assert apply(batchnorm_to_affine.run, graph)
    assert op_types(graph) == ["Mul", "Add"]


def test_batchnorm__computed_statistics__stays() -> None:
    known = {k: v for k, v in STATISTICS.items() if k != "scale"}
    nodes = [node("BatchNormalization", ["x", *STATISTICS], ["y"])]
    graph = graph_of(nodes, {"x": (2, 2, 3, 3), "scale": (2,)}, ["y"], known)
    assert not apply(batchnorm_to_affine.run, graph)


def test_sink_reshape__between_product_and_residual__moves_after() -> None:
    nodes = [
        node("MatMul", ["x", "w"], ["p"]),
        node("Reshape", ["p", "s"], ["r"]),
        node("Add", ["r", "z"], ["a"]),
        node("Relu", ["a"], ["y"]),
    ]
    constants = {"w": np.ones((3, 4), np.float32), "s": np.array([1, 6, 4])}
    graph = graph_of(nodes, {"x": (6, 3), "z": (1, 6, 4)}, ["y"], constants)
    assert apply(sink_reshape.run, graph)
    assert apply(dead_code.run, graph)
    assert op_types(graph) == ["MatMul", "Reshape", "Add", "Relu", "Reshape"]


def test_sink_reshape__last_dimension_changes__stays() -> None:
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Reshape", ["p", "s"], ["r"]), node("Add", ["r", "z"], ["y"])]
    constants = {"w": np.ones((3, 4), np.float32), "s": np.array([6, 2, 2])}
    assert not apply(sink_reshape.run, graph_of(nodes, {"x": (6, 3), "z": (6, 2, 2)}, ["y"], constants))


@pytest.mark.parametrize(("exponent", "products"), [(2, 1), (3, 2)])
def test_small_powers__squares_and_cubes__are_products(exponent: int, products: int) -> None:
    graph = graph_of([node("Pow", ["x", "n"], ["y"])], {"x": (3, 4)}, ["y"], {"n": np.array(exponent, np.float32)})
    assert apply(small_powers.run, graph)
    assert op_types(graph) == ["Mul"] * products


@pytest.mark.parametrize(
    ("dtype", "exponent"),
    [
        (DType.FLOAT, np.array(2.5, np.float32)),
        (DType.FLOAT, np.array(4, np.float32)),
        (DType.FLOAT, np.array([2, 3, 2, 3], np.float32)),
        (DType.FLOAT, np.full((1, 1, 1), 2, np.float32)),
        (DType.FLOAT16, np.array(3, np.float16)),
        (DType.INT32, np.array(2, np.int32)),
    ],
)
def test_small_powers__other_exponents_shapes_and_types__are_left_alone(dtype: DType, exponent: Array) -> None:
    graph = graph_of([node("Pow", ["x", "n"], ["y"])], {"x": (3, 4)}, ["y"], {"n": exponent}, dtype)
    with np.errstate(invalid="ignore"):
        assert not apply(small_powers.run, graph)


def test_small_powers__exponent_that_comes_with_a_run__is_left_alone() -> None:
    graph = graph_of([node("Pow", ["x", "n"], ["y"])], {"x": (3,), "n": ()}, ["y"])
    with np.errstate(invalid="ignore"):
        assert not apply(small_powers.run, graph)

"""session/run/small_runs.py: what a run is predicted to take, from shapes alone."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from pyruntime.ir import DType, HostTensor, TensorType
from pyruntime.onnx.importer.model import import_model
from pyruntime.onnx.reader import read_model
from pyruntime.session.run.small_runs import predicted_work

LIMIT = 1 << 19  # web/api/env.js


def work(nodes: list[Any], feeds: dict[str, np.ndarray[Any, Any]], outputs: list[str], opset: int = 20) -> float:
    """Of a model whose inputs have no declared shape."""
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), [None] * a.ndim)
        for n, a in feeds.items()
    ]
    results = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs]
    graph = helper.make_graph(nodes, "test", inputs, results)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    model = import_model(read_model(made.SerializeToString()))
    return predicted_work(model.graph, {n: fed(a).known(n) for n, a in feeds.items()})


def fed(array: np.ndarray[Any, Any]) -> HostTensor:
    return HostTensor(TensorType(DType.from_numpy(array.dtype), array.shape), None, array)


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return np.ones(shape, np.float32)


def resize(side: int, out: int) -> float:
    node = helper.make_node("Resize", ["x", "", "", "s"], ["y"], mode="linear")
    return work([node], {"x": floats(1, 3, side, side), "s": np.array([1, 3, out, out])}, ["y"])


def product(m: int, k: int, n: int) -> float:
    return work([helper.make_node("MatMul", ["a", "b"], ["y"])], {"a": floats(m, k), "b": floats(k, n)}, ["y"])


def test_work__of_tiny_runs__is_within_the_limit() -> None:
    assert product(16, 16, 16) <= LIMIT
    assert resize(16, 32) <= LIMIT
    top = helper.make_node("TopK", ["x", "k"], ["v", "i"])
    assert work([top], {"x": floats(1, 8000), "k": np.array([50])}, ["v", "i"]) <= LIMIT
    axes = [np.array([v, v]) for v in (0, 3)]
    cut = helper.make_node("Slice", ["x", "s", "e"], ["y"])
    assert work([cut], {"x": floats(50, 60), "s": axes[0], "e": axes[1]}, ["y"]) <= LIMIT


def test_work__of_large_results_from_small_inputs__is_beyond_it() -> None:
    assert resize(16, 512) > LIMIT
    spread = helper.make_node("Expand", ["x", "s"], ["y"])
    assert work([spread], {"x": floats(1, 1), "s": np.array([1000, 1000])}, ["y"]) > LIMIT


def test_work__of_products__grows_with_what_is_summed() -> None:
    assert product(256, 256, 256) > LIMIT
    assert product(64, 64, 64) >= 64**3, "never less than the multiplications"
    assert product(128, 64, 128) >= 128 * 64 * 128
    kernels = {"x": floats(1, 8, 64, 64), "w": floats(16, 8, 3, 3)}
    assert work([helper.make_node("Conv", ["x", "w"], ["y"])], kernels, ["y"]) > 62 * 62 * 16 * 8 * 9


def test_work__of_arithmetic_and_joins__is_linear() -> None:
    pair = {"a": floats(100, 100), "b": floats(100, 100)}
    assert work([helper.make_node("Add", ["a", "b"], ["y"])], pair, ["y"]) <= LIMIT
    assert work([helper.make_node("Concat", ["a", "b"], ["y"], axis=0)], pair, ["y"]) <= 2 * LIMIT


def test_work__of_a_chain__is_the_sum() -> None:
    one = helper.make_node("Relu", ["x"], ["h"])
    two = helper.make_node("Relu", ["h"], ["y"])
    single = work([helper.make_node("Relu", ["x"], ["y"])], {"x": floats(1000)}, ["y"])
    assert work([one, two], {"x": floats(1000)}, ["y"]) == 2 * single


@pytest.mark.parametrize("count", [9, 100])
def test_work__of_many_nodes__is_not_predicted(count: int) -> None:
    nodes = [helper.make_node("Relu", [f"x{i}" if i else "x"], [f"x{i + 1}"]) for i in range(count)]
    assert work(nodes, {"x": floats(2)}, [f"x{count}"]) == inf


def test_work__of_shapes_that_hang_on_results__is_not_predicted() -> None:
    at = helper.make_node("NonZero", ["sum"], ["at"])
    nodes = [helper.make_node("Add", ["x", "x"], ["sum"]), at, helper.make_node("Cast", ["at"], ["y"], to=1)]
    assert work(nodes, {"x": floats(4)}, ["y"]) == inf

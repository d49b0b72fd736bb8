"""split_large_weights: every operator that it splits computes the same, and binds nothing larger than the limit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from pyruntime.compiler.build import build_plan
from pyruntime.compiler.saved import read
from pyruntime.compiler.verify import complaints
from pyruntime.ir import Constant, DType, Node, TensorType, TypedGraph
from pyruntime.kernels import Target
from pyruntime.ops.microsoft.products.gather_block_quantized import GatherBlockQuantized
from pyruntime.ops.microsoft.products.matmul_nbits import MatMulNBits
from pyruntime.passes import optimize
from pyruntime.passes.cleanup import dead_code
from pyruntime.passes.layout import split_large_weights
from pyruntime.session.aot.compile_ahead import compile_model
from pyruntime.target import Limits
from tests.compiler.graphs import typed_graph
from tests.passes.support import apply, evaluate, node, op_types

LIMIT = 4096
SMALL = Target(Limits(binding_bytes=LIMIT))
RNG = np.random.default_rng(3)


def weights(*shape: int, dtype: str = "float32") -> Any:
    return RNG.standard_normal(shape).astype(dtype)


def small_ints(*shape: int, dtype: str = "int8") -> Any:
    return RNG.integers(0, 100, shape).astype(dtype)


def graph_of(nodes: list[Node], inputs: Mapping[str, Any], constants: Mapping[str, Any]) -> TypedGraph:
    made = {n: a if isinstance(a, Constant) else Constant.from_array(np.asarray(a)) for n, a in constants.items()}
    kinds = {n: s if isinstance(s, TensorType) else TensorType(DType.FLOAT, s) for n, s in inputs.items()}
    return typed_graph(nodes, kinds, ["y"], made)


def nbits(n: int, k: int, bits: int, **inputs: Any) -> tuple[list[Node], dict[str, Any], dict[str, Any]]:
    """A product with packed weights of n rows and blocks of 32."""
    blocks, slots = k // 32, ["x", "b", "scales", *(inputs and ["zeros", "", "bias"])]
    given = {
        "b": small_ints(n, blocks, 32 * bits // 8, dtype="uint8"),
        "scales": weights(n * blocks),
        **({"zeros": small_ints(n * -(-blocks * bits // 8), dtype="uint8"), "bias": weights(n)} if inputs else {}),
    }
    made = [Node(MatMulNBits(K=k, N=n, bits=bits, block_size=32), tuple(slots), ("y",))]
    return made, {"x": (3, k)}, given


def one(op: str, inputs: str, shape: Any, constants: Mapping[str, Any], **attributes: Any) -> tuple[Any, ...]:
    return [node(op, inputs.split(), ["y"], **attributes)], {"x": shape}, constants


def chain(nodes: list[Node], shape: Any, constants: Mapping[str, Any]) -> tuple[Any, ...]:
    return nodes, {"x": shape}, constants


def filled(nodes: list[Node], shape: Any, *sizes: int, value: float = 0.25, **constants: Any) -> tuple[Any, ...]:
    """A weight that ConstantOfShape makes."""
    made = node("ConstantOfShape", ["s"], ["w"], value=Constant.from_array(np.array([value], np.float32)))
    return [made, *nodes], {"x": shape}, {"s": np.array(sizes, np.int64), **constants}


CASES: dict[str, tuple[Any, ...]] = {
    "MatMul of k": one("MatMul", "x w", (1, 3, 200), {"w": weights(200, 40)}),
    "MatMul of a vector": one("MatMul", "x w", (200,), {"w": weights(200, 40)}),
    "MatMul of few wide rows": one("MatMul", "x w", (1, 5), {"w": weights(5, 600)}),
    "MatMul with weights on the left": one("MatMul", "w x", (2, 50, 3), {"w": weights(130, 50)}),
    "MatMul with weights on the left of a vector": one("MatMul", "w x", (50,), {"w": weights(130, 50)}),
    "MatMul of stacks": one("MatMul", "x w", (5, 3, 40), {"w": weights(5, 40, 12)}),
    "MatMul of stacks, one left": one("MatMul", "x w", (3, 40), {"w": weights(5, 40, 12)}),
    "MatMul with a transposed weight": chain(
        [node("Transpose", ["w"], ["t"], perm=(1, 0)), node("MatMul", ["x", "t"], ["y"])],
        (1, 2, 40), {"w": weights(210, 40)},
    ),
    "MatMul with a cast weight": chain(
        [node("Cast", ["w"], ["c"], to=1), node("MatMul", ["x", "c"], ["y"])],
        (2, 3, 40), {"w": weights(40, 100, dtype="float16")},
    ),
    "MatMul with a weight cast and transposed": chain(
        [node("Cast", ["w"], ["c"], to=1), node("Transpose", ["c"], ["t"]), node("MatMul", ["x", "t"], ["y"])],
        (3, 40), {"w": weights(100, 40, dtype="float16")},
    ),
    "MatMulInteger": one(
        "MatMulInteger", "x w xz wz", TensorType(DType.UINT8, (3, 200)),
        {"w": small_ints(200, 40), "xz": np.uint8(3), "wz": small_ints(40)},
    ),
    "Gemm of k": one("Gemm", "x w c", (3, 200), {"w": weights(200, 40), "c": weights(40)}, alpha=0.5, beta=2.0),
    "Gemm of k, transposed": one("Gemm", "x w c", (200, 3), {"w": weights(200, 40), "c": weights(3, 1)}, transA=1),
    "Gemm of columns": one("Gemm", "x w c", (3, 40), {"w": weights(210, 40), "c": weights(210)}, transB=1, alpha=0.5),
    "Gemm of columns, scalar": one("Gemm", "x w c", (3, 40), {"w": weights(210, 40), "c": weights(1)}, transB=1),
    "Gemm of columns without": one("Gemm", "x w", (3, 40), {"w": weights(210, 40)}, transB=1),
    "Conv": one("Conv", "x w b", (1, 3, 5, 5), {"w": weights(70, 3, 3, 3), "b": weights(70)}),
    "Gather": one("Gather", "w x", TensorType(DType.INT64, (2, 3)), {"w": weights(300, 7)}),
    "Gather of float16": one("Gather", "w x", TensorType(DType.INT32, (5,)), {"w": weights(700, 6, dtype="float16")}),
    "Gather of int8": one("Gather", "w x", TensorType(DType.INT32, ()), {"w": small_ints(900, 5)}),
    "Gather of one column": one("Gather", "w x", TensorType(DType.INT64, (4,)), {"w": weights(2000)}),
    "Gather of a cast table": chain(
        [node("Cast", ["w"], ["c"], to=1), node("Gather", ["c", "x"], ["y"])],
        TensorType(DType.INT64, (2, 3)), {"w": weights(300, 12, dtype="float16")},
    ),
    "MatMul of k, filled": filled([node("MatMul", ["x", "w"], ["y"])], (3, 200), 200, 40),
    "MatMul with a transposed weight, filled": filled(
        [node("Transpose", ["w"], ["t"]), node("MatMul", ["x", "t"], ["y"])], (2, 40), 210, 40
    ),
    "Gemm of columns, filled": filled(
        [node("Gemm", ["x", "w", "c"], ["y"], transB=1)], (3, 40), 210, 40, c=weights(210)
    ),
    "Conv, filled": filled([node("Conv", ["x", "w"], ["y"])], (1, 3, 5, 5), 70, 3, 3, 3),
    "Gather, filled": filled([node("Gather", ["w", "x"], ["y"])], TensorType(DType.INT64, (2, 3)), 300, 7),
    "MatMulNBits, 4 bits": nbits(160, 64, 4),
    "MatMulNBits, 8 bits": nbits(100, 64, 8, more=True),
    "MatMulNBits, 2 bits": nbits(300, 64, 2, more=True),
    "GatherBlockQuantized": (
        [Node(GatherBlockQuantized(bits=4, block_size=16), ("w", "x", "s", "z"), ("y",))],
        {"x": TensorType(DType.INT64, (2, 3))},
        {"w": small_ints(300, 16, dtype="uint8"), "s": weights(300, 2), "z": small_ints(300, 1, dtype="uint8")},
    ),
}  # fmt: skip


def feeds_of(graph: TypedGraph) -> dict[str, Any]:
    kind = graph.tensor("x")
    if kind.dtype.is_float:
        return {"x": weights(*kind.shape)}
    rows = 200 if kind.dtype is DType.UINT8 else 300
    low = 0 if kind.dtype is DType.UINT8 else -rows
    return {"x": RNG.integers(low, rows, kind.shape).astype(kind.dtype.numpy)}


@pytest.mark.parametrize("case", CASES)
def test_split__weight_above_the_limit__same_result_in_parts_that_can_be_bound(case: str) -> None:
    graph = graph_of(*CASES[case])
    feeds = feeds_of(graph)
    before = evaluate(graph, feeds)
    assert split_large_weights.run(graph, SMALL)
    graph.verify()
    for mine, theirs in zip(evaluate(graph, feeds), before, strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4)
    dead_code.run(graph, SMALL)
    read = {n for made in graph.nodes for n in made.inputs if n in graph.constants}
    assert max(graph.tensor(n).nbytes for n in read) <= LIMIT
    assert len(read) > 1


@pytest.mark.parametrize("case", CASES)
def test_split__whole_pipeline__every_node_has_a_kernel(case: str) -> None:
    graph = graph_of(*CASES[case])
    optimize(graph, SMALL)
    plan = build_plan(graph, SMALL)
    assert not [a for a in plan.assignments if a.placement == "host"]
    assert list(complaints(plan)) == []
    assert max(region.nbytes for command in plan.commands for region in command.regions) <= LIMIT


@pytest.mark.parametrize("case", CASES)
def test_split__weight_within_the_limit__changes_nothing(case: str) -> None:
    graph = graph_of(*CASES[case])
    before = op_types(graph)
    assert not split_large_weights.run(graph, Target())
    assert op_types(graph) == before


def test_split__table_of_two_readers__its_parts_are_stored_once() -> None:
    nodes = [
        node("Gather", ["w", "i"], ["e"]),
        node("Transpose", ["w"], ["t"]),
        node("MatMul", ["e", "t"], ["y"]),
    ]
    graph = graph_of(nodes, {"i": TensorType(DType.INT64, (1, 2))}, {"w": weights(300, 16)})
    optimize(graph, SMALL)
    plan = build_plan(graph, SMALL)
    tables = [c for c in plan.constants if c.nbytes > 1024]
    assert sum(c.nbytes for c in tables) == 300 * 16 * 4
    assert not [a for a in plan.assignments if a.placement == "host"]


def test_split__row_above_the_limit__stays_whole() -> None:
    graph = graph_of(*one("MatMul", "x w", (2, 3), {"w": weights(3, 1500)}))
    assert not split_large_weights.run(graph, SMALL)


def test_split__value_of_a_run__stays_whole() -> None:
    graph = graph_of([node("MatMul", ["x", "w"], ["y"])], {"x": (3, 200), "w": (200, 40)}, {})
    assert not apply(split_large_weights.run, graph, target=SMALL)


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.FLOAT16])
def test_split__lengths_that_are_open__compiles_for_the_gpu_alone(dtype: int, tmp_path: Path) -> None:
    table = numpy_helper.from_array(weights(300, 16, dtype=str(helper.tensor_dtype_to_np_dtype(dtype))), "w")
    nodes = [
        helper.make_node("Gather", ["w", "ids"], ["e"]),
        helper.make_node("ReduceMax", ["e"], ["r"], axes=[1]),
        helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["r", "t"], ["y"]),
    ]
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["b", "s"])
    y = helper.make_tensor_value_info("y", dtype, ["b", 1, 300])
    model = helper.make_model(
        helper.make_graph(nodes, "g", [ids], [y], [table]), opset_imports=[helper.make_opsetid("", 17)]
    )
    onnx.save(model, tmp_path / "model.onnx")
    target = Target(Limits(binding_bytes=8192))
    (program,) = read(compile_model(tmp_path / "model.onnx", {"ids": [(1, 2), (1, 6)]}, target)).programs
    regions = [r.nbytes for c in program.plan.commands for r in c.regions]
    assert max(regions) <= 8192

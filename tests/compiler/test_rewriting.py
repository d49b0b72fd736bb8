"""Graphs rewritten as ONNX for other runtimes: they compute the same, for every size that stays symbolic."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from pyruntime.compiler.rewriting import rewrite
from pyruntime.errors import InvalidArgument
from pyruntime.ir import Array, Graph
from pyruntime.onnx.graph_writer import write_model
from pyruntime.onnx.importer.model import import_model
from pyruntime.onnx.reader import read_model
from tests.onnx.models import Y, model, node, of
from tests.oracle import OPTIONS

ROOT = Path(__file__).parents[2]
XY = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "s", 8])


def rewritten(content: bytes, path: Path, dims: Mapping[str, int] | None = None) -> Graph:
    """The graph of a model after rewriting, which is also written to `path`."""
    given = import_model(read_model(content))
    graph = rewrite(given.graph, dims or {})
    write_model(path, graph, given.opsets, given.metadata)
    onnx.checker.check_model(str(path), full_check=True)
    return graph


def agree(content: bytes, path: Path, **feeds: Array) -> None:
    """onnxruntime computes the same of both."""
    before, after = ort.InferenceSession(content, OPTIONS), ort.InferenceSession(str(path), OPTIONS)
    for a, b in zip(before.run(None, feeds), after.run(None, feeds), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6)


def drawn(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def op_types(graph: Graph) -> list[str]:
    return [n.op.op_type for n in graph.nodes]


def sized(*nodes: Any, outputs: Any = (Y,), **weights: Any) -> bytes:
    """A model on x [n, s, 8] with the values `sizes` = [n, s, 8], `n` and `s` (of one element each)."""
    given = [
        node("Shape", ["x"], ["sizes"]),
        node("Slice", ["sizes", "zero", "one"], ["n"]),
        node("Slice", ["sizes", "one", "two"], ["s"]),
    ]
    numbers = [of([v], k, "i8") for k, v in {"zero": 0, "one": 1, "two": 2}.items()]
    tensors = [of(v, k, "i8" if np.asarray(v).dtype.kind == "i" else "f4") for k, v in weights.items()]
    return bytes(model([*given, *nodes], [*numbers, *tensors], [XY], outputs).SerializeToString())


def test_rewrite__digits__keeps_its_symbol_and_results(tmp_path: Path) -> None:
    content = (ROOT / "models" / "digits.onnx").read_bytes()
    graph = rewritten(content, tmp_path / "m.onnx")
    assert str(graph.inputs[0].type.shape) == "('N', 1, 16, 16)"  # type: ignore[union-attr]
    for n in (1, 3):
        agree(content, tmp_path / "m.onnx", image=drawn(n, 1, 16, 16))
    fixed = rewritten(content, tmp_path / "m.onnx", {"N": 2})
    assert fixed.inputs[0].type.shape == (2, 1, 16, 16)  # type: ignore[union-attr]
    agree(content, tmp_path / "m.onnx", image=drawn(2, 1, 16, 16))


def test_rewrite__reshape_to_one_symbolic_size__infers_it(tmp_path: Path) -> None:
    content = sized(
        node("Mul", ["n", "s"], ["rows"]),
        node("Concat", ["rows", "eight"], ["shape"], axis=0),
        node("Reshape", ["x", "shape"], ["y"]),
        eight=[8],
    )
    graph = rewritten(content, tmp_path / "m.onnx")
    assert op_types(graph) == ["Reshape"]
    assert [c.numpy().tolist() for c in graph.constants.values()] == [[-1, 8]]
    for n, s in ((1, 1), (2, 5)):
        agree(content, tmp_path / "m.onnx", x=drawn(n, s, 8))


def test_rewrite__shapes_of_several_symbolic_sizes__are_computed(tmp_path: Path) -> None:
    content = sized(
        node("Concat", ["s", "n", "four", "two"], ["shape"], axis=0),
        node("Reshape", ["x", "shape"], ["apart"]),
        node("Transpose", ["x"], ["turned"], perm=[0, 2, 1]),
        node("MaxPool", ["turned"], ["pooled"], kernel_shape=[1], strides=[2]),
        node("Shape", ["pooled"], ["like"]),
        node("Expand", ["w", "like"], ["wide"]),
        node("Concat", ["pooled", "wide"], ["z"], axis=1),
        outputs=[helper.make_tensor_value_info(n, TensorProto.FLOAT, [None] * d) for n, d in (("apart", 4), ("z", 3))],
        four=[4],
        w=[[[0.5]]],
    )
    graph = rewritten(content, tmp_path / "m.onnx")
    assert op_types(graph).count("Shape") == 2 and "Div" in op_types(graph)
    for n, s in ((1, 1), (1, 2), (3, 5), (2, 8)):
        agree(content, tmp_path / "m.onnx", x=drawn(n, s, 8))


def test_rewrite__norms_written_out__become_one_node_of_a_newer_opset(tmp_path: Path) -> None:
    content = model(
        [
            node("ReduceMean", ["x"], ["mean"], axes=[-1]),
            node("Sub", ["x", "mean"], ["d"]),
            node("Pow", ["d", "two"], ["square"]),
            node("ReduceMean", ["square"], ["variance"], axes=[-1]),
            node("Add", ["variance", "epsilon"], ["above"]),
            node("Sqrt", ["above"], ["deviation"]),
            node("Div", ["d", "deviation"], ["normed"]),
            node("Mul", ["normed", "scale"], ["scaled"]),
            node("Add", ["scaled", "shift"], ["y"]),
        ],
        [of(2, "two"), of(1e-5, "epsilon"), of(np.arange(8), "scale"), of(np.ones(8), "shift")],
        [XY],
        opset=13,
    ).SerializeToString()
    assert op_types(rewritten(content, tmp_path / "m.onnx")) == ["LayerNormalization"]
    assert onnx.load(tmp_path / "m.onnx").opset_import[0].version == 17
    agree(content, tmp_path / "m.onnx", x=drawn(2, 3, 8))


def test_rewrite__constants__are_folded_where_that_is_not_larger(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    content = model(
        [
            node("Transpose", ["w"], ["turned"], perm=[1, 0]),
            node("MatMul", ["x", "turned"], ["a"]),
            node("DequantizeLinear", ["q", "scale"], ["dequantized"]),
            node("MatMul", ["a", "dequantized"], ["b"]),
            node("Expand", ["row", "large"], ["rows"]),
            node("Add", ["b", "rows"], ["y"]),
        ],
        [
            of(rng.standard_normal((64, 8)), "w"),
            of(rng.integers(-9, 9, (64, 64)), "q", "i1"),
            of(0.1, "scale"),
            of(rng.standard_normal((1, 64)), "row"),
            of([99, 64], "large", "i8"),
        ],
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 99, 8])],
    ).SerializeToString()
    graph = rewritten(content, tmp_path / "m.onnx")
    assert op_types(graph) == ["MatMul", "DequantizeLinear", "MatMul", "Add"]  # Add broadcasts the row itself
    agree(content, tmp_path / "m.onnx", x=drawn(2, 99, 8))


def test_rewrite__values_that_only_a_run_brings__leave_the_rest_as_stored(tmp_path: Path) -> None:
    content = model(
        [
            node("Identity", ["x"], ["same"]),
            node("NonZero", ["same"], ["places"]),
            node("Identity", ["places"], ["again"]),
            node("Shape", ["again"], ["y"]),
        ],
        (),
        [XY],
        [helper.make_tensor_value_info("y", TensorProto.INT64, [2])],
    ).SerializeToString()
    assert op_types(rewritten(content, tmp_path / "m.onnx")) == ["Identity", "NonZero", "Identity", "Shape"]
    agree(content, tmp_path / "m.onnx", x=drawn(2, 3, 8))


def test_rewrite__operators_that_expand_to_others__stay_one_node(tmp_path: Path) -> None:
    content = model([node("HardSwish", ["x"], ["a"]), node("Gelu", ["a"], ["y"])], (), [XY], opset=20)
    assert op_types(rewritten(content.SerializeToString(), tmp_path / "m.onnx")) == ["HardSwish", "Gelu"]


def test_rewrite__initializer_that_is_an_input__stays_one(tmp_path: Path) -> None:
    w = helper.make_tensor_value_info("w", TensorProto.FLOAT, [8])
    content = model(
        [node("Neg", ["w"], ["m"]), node("Add", ["x", "m"], ["y"])], [of(np.ones(8), "w")], [XY, w]
    ).SerializeToString()
    assert op_types(rewritten(content, tmp_path / "m.onnx")) == ["Neg", "Add"]
    agree(content, tmp_path / "m.onnx", x=drawn(1, 2, 8), w=drawn(8))
    agree(content, tmp_path / "m.onnx", x=drawn(1, 2, 8))


def test_rewrite__what_depends_on_a_size__asks_for_it() -> None:
    content = sized(
        node("Greater", ["s", "four"], ["long"]),
        node("Squeeze", ["long"], ["is_long"]),
        node(
            "If",
            ["is_long"],
            ["y"],
            then_branch=helper.make_graph([node("Neg", ["x"], ["t"])], "then", [], [Y.__class__(name="t")]),
            else_branch=helper.make_graph([node("Abs", ["x"], ["e"])], "else", [], [Y.__class__(name="e")]),
        ),
        four=[4],
    )
    graph = import_model(read_model(content)).graph
    with pytest.raises(InvalidArgument, match=r"depends on s; give the size: --dim s=SIZE"):
        rewrite(graph, {})
    assert "Neg" in op_types(rewrite(graph, {"s": 5})) and "Abs" in op_types(rewrite(graph, {"s": 3}))
    with pytest.raises(InvalidArgument, match="'batch' is no symbolic dimension of the model; it has n, s"):
        rewrite(graph, {"batch": 1})

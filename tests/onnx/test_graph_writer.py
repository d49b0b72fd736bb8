"""Graphs written as ONNX files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from pyruntime.errors import InvalidArgument
from pyruntime.ir import Constant, Graph, Node
from pyruntime.onnx import graph_writer
from pyruntime.onnx.graph_writer import opset_for, write_model
from pyruntime.onnx.importer.model import ImportedModel, import_model
from pyruntime.onnx.reader import read_model
from pyruntime.ops.base import attributes_of
from pyruntime.ops.fused.elementwise import FusedElementwise, Step
from pyruntime.ops.registry import newest
from tests.harness import node_tests
from tests.onnx.models import X, model, node, of
from tests.oracle import OPTIONS
from tests.sampling import ALL

Y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N"])

STEP = 1 if ALL else 7
"""Every so many of ONNX's node cases are written."""


def imported(made: onnx.ModelProto) -> ImportedModel:
    return import_model(read_model(made.SerializeToString()))


def written(given: ImportedModel, path: Path) -> onnx.ModelProto:
    """The file that is written of a model; ONNX's checker accepts it."""
    write_model(path, given.graph, given.opsets, given.metadata)
    onnx.checker.check_model(str(path))
    return onnx.load(path)


def described(value: Any) -> Any:
    """Attributes by value: constants by their bytes, bodies by their nodes."""
    match value:
        case Constant():
            return str(value.type), value.numpy().tolist()
        case Graph():
            inner = [(described(n.op), n.inputs, n.outputs) for n in value.nodes]
            return inner, value.inputs, value.outputs, [(n, described(c)) for n, c in value.constants.items()]
        case Node():
            return described(value.op), value.inputs, value.outputs
        case tuple():
            return tuple(map(described, value))
    return {n: described(v) for n, v in attributes_of(value).items()} if hasattr(value, "op_type") else repr(value)


def test_write_model__cases_of_onnx__are_read_as_they_were(tmp_path: Path) -> None:
    for case in list(node_tests().values())[::STEP]:
        assert case.model is not None
        given = imported(case.model)
        again = imported(written(given, tmp_path / "model.onnx"))
        assert [described(n) for n in again.graph.nodes] == [described(n) for n in given.graph.nodes], case.name
        assert (again.graph.inputs, again.graph.outputs) == (given.graph.inputs, given.graph.outputs), case.name


def test_write_model__all_that_a_model_has__stays(tmp_path: Path) -> None:
    body = helper.make_graph(
        [node("Add", ["carried", "w"], ["sum"]), node("Identity", ["go"], ["on"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("carried", TensorProto.FLOAT, ["N"]),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("sum", TensorProto.FLOAT, [None]),
        ],
    )
    weights = [of([1.5], "w"), of(3, "trips", "i8")]
    made = model([node("Loop", ["trips", "", "x"], ["y"], body=body)], weights, [X], [Y])
    made.metadata_props.add(key="labels", value="a,b")
    made.producer_name = "test"
    file = written(imported(made), tmp_path / "model.onnx")
    assert (file.producer_name, file.metadata_props[0].value, file.opset_import[0].version) == ("test", "a,b", 17)
    assert file.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "N"
    x = np.array([1, 2], np.float32)
    for content in (made.SerializeToString(), file.SerializeToString()):
        (y,) = ort.InferenceSession(content, OPTIONS).run(None, {"x": x})
        np.testing.assert_array_equal(y, x + 4.5)


@pytest.mark.parametrize("name", ["model.onnx", "other.onnx"])
def test_write_model__large_weights__are_in_a_file_next_to_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph_writer, "_LARGEST_FILE", 1 << 12)
    weights = np.arange(2048, dtype=np.float32)
    made = model([node("Add", ["x", "w"], ["a"]), node("Mul", ["a", "c"], ["y"])], [of(weights, "w"), of([2], "c")])
    onnx.save(made, tmp_path / "model.onnx", save_as_external_data=True, location="model.onnx.data", size_threshold=0)
    given = import_model(read_model(str(tmp_path / "model.onnx")), folder=tmp_path)
    write_model(tmp_path / name, given.graph, given.opsets, given.metadata)  # perhaps over the files that it is read of
    assert (tmp_path / f"{name}.data").stat().st_size == weights.nbytes
    file = onnx.load(tmp_path / name, load_external_data=False)
    assert [bool(t.external_data) for t in file.graph.initializer] == [True, False]
    (y,) = ort.InferenceSession(str(tmp_path / name), OPTIONS).run(None, {"x": np.ones(1, np.float32)})
    np.testing.assert_array_equal(y, (weights + 1) * 2)


def test_write_model__fused_operator__is_named(tmp_path: Path) -> None:
    relu: Any = newest("Relu")
    fused = FusedElementwise(steps=(Step(relu, (0,)),))
    graph = Graph("g", [], [], [Node(fused, ("x",), ("y",), "first")])
    with pytest.raises(InvalidArgument, match=r"1 nodes .* 'first' \(FusedElementwise\); leave out"):
        write_model(tmp_path / "model.onnx", graph, {"": 17})
    assert not list(tmp_path.iterdir())


def test_write_model__folder_that_does_not_exist__is_named(tmp_path: Path) -> None:
    given = imported(model([node("Relu", ["x"], ["y"])]))
    with pytest.raises(InvalidArgument, match=r"could not be written to .*nowhere"):
        write_model(tmp_path / "nowhere" / "model.onnx", given.graph, given.opsets)


def test_opset_for__versions_of_operators__decide() -> None:
    old = imported(model([node("Reshape", ["x", "s"], ["y"])], [of([-1], "s", "i8")], opset=11)).graph
    assert opset_for(old, 11) == 11
    norm = Node(newest("LayerNormalization"), ("y", "s"), ("z",), "norm")
    old.nodes.append(norm)
    assert opset_for(old, 11) == 17  # Reshape of opset 5 means the same in 17
    old.nodes.append(Node(newest("Reshape", allowzero=1), ("y", "s"), ("z2",)))
    assert opset_for(old, 11) == 17
    squeeze = imported(model([node("Squeeze", ["x"], ["y"], axes=[0])], opset=11, inputs=[X], outputs=[Y])).graph
    assert opset_for(squeeze, 9) == 9
    squeeze.nodes.append(norm)
    with pytest.raises(InvalidArgument, match=r"17 for LayerNormalization, but the model has Squeeze \(at most 12\)"):
        opset_for(squeeze, 11)


def test_write_model__nodes_of_one_name__get_several(tmp_path: Path) -> None:
    given = imported(model([node("Relu", ["x"], ["a"], name="n"), node("Neg", ["a"], ["y"], name="n")], (), [X], [Y]))
    assert [n.name for n in written(given, tmp_path / "model.onnx").graph.node] == ["n", "n#2"]

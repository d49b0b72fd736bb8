"""The importer: values, initializers, versions, metadata; and every model the onnx package has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import onnxruntime.capi.onnxruntime_pybind11_state as theirs
import pytest
from onnx import NodeProto, TensorProto, helper

from pyruntime.errors import Fail, InvalidGraph, InvalidProtobuf, NoSuchFile, OrtError
from pyruntime.ir import DeclaredTensor, DType, ValueInfo
from tests.onnx.corpus import FILES, file_id, node_models
from tests.onnx.models import (
    V,
    X,
    import_or_name_the_operator,
    imported,
    model,
    node,
    of,
    run,
)


@pytest.mark.parametrize("path", FILES, ids=file_id)
def test_import__every_model_file__keeps_its_structure(path: Path) -> None:
    import_or_name_the_operator(path.read_bytes())


def test_import__every_generated_node_model__keeps_its_structure() -> None:
    done = 0
    for name, data in node_models().items():
        try:
            done += import_or_name_the_operator(data)
        except Exception as error:
            raise AssertionError(name) from error
    assert done > 300


def test_nodes__out_of_order__are_sorted_stably() -> None:
    nodes = [node("Add", ["p", "q"], ["y"]), node("Abs", ["x"], ["q"]), node("Neg", ["x"], ["p"])]
    run(model(nodes), {"x": V})
    assert [n.op.op_type for n in imported(model(nodes)).graph.nodes] == ["Abs", "Neg", "Add"]


def test_nodes__twenty_thousand_in_reverse__are_sorted() -> None:
    count = 20_000
    nodes = [
        node("Neg", [f"v{n}" if n else "x"], [f"v{n + 1}" if n + 1 < count else "y"]) for n in reversed(range(count))
    ]
    assert imported(model(nodes)).graph.nodes[0].inputs == ("x",)


@pytest.mark.parametrize(
    ("nodes", "error", "what"),
    [
        (
            [node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"]), node("Relu", ["a"], ["y"])],
            Fail,
            r"'b' \(Relu\) -> 'a' \(Add\) -> 'b'",
        ),
        ([node("Relu", ["y"], ["y"])], Fail, "acyclic"),
        ([node("Relu", ["zz"], ["y"], name="n1")], InvalidGraph, r"node 'n1' \(Relu\): the input 'zz'"),
        ([node("Relu", ["x"], ["q"])], Fail, "graph output 'y'"),
        ([node("Relu", ["x"], ["y"]), node("Abs", ["x"], ["y"])], Fail, "value 'y'"),
        ([node("Abs", ["x"], ["x"]), node("Relu", ["x"], ["y"])], Fail, "value 'x'"),
        ([node("Abs", ["x"], ["w"]), node("Relu", ["x"], ["y"])], Fail, "value 'w'"),
        ([node("Split", ["x"], ["y", "y"])], Fail, "value 'y'"),
    ],
)
def test_values__that_do_not_add_up__are_refused_as_by_onnxruntime(
    nodes: list[NodeProto], error: type[OrtError], what: str
) -> None:
    proto = model(nodes, [of([1.0], "w")])
    with pytest.raises(error, match=what):
        imported(proto)
    with pytest.raises((theirs.Fail, theirs.InvalidArgument)):
        ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])


def test_inputs__duplicate_unnamed_or_untyped__fail() -> None:
    relu = [node("Relu", ["x"], ["y"])]
    with pytest.raises(Fail, match="input 'x'"):
        imported(model(relu, inputs=[X, X]))
    with pytest.raises(Fail, match="no type"):
        imported(model(relu, inputs=[onnx.ValueInfoProto(name="x")]))
    with pytest.raises(Fail, match="without name"):
        imported(model(relu, inputs=[X, helper.make_tensor_value_info("", 1, [])]))
    with pytest.raises(Fail, match="element type 77"):
        imported(model(relu, inputs=[helper.make_tensor_value_info("x", 77, [])]))


def test_initializers__with_one_name__the_last_counts() -> None:
    proto = model([node("Add", ["x", "w"], ["y"])], [of([1, 1, 1, 1], "w"), of([2, 3, 4, 5], "w")])
    (y,) = run(proto, {"x": np.zeros(4, np.float32)})
    assert y.tolist() == [2, 3, 4, 5]


def test_inputs__with_initializers__are_overridable_from_ir_version_4() -> None:
    w = helper.make_tensor_value_info("w", 1, [4])
    for ir, expected in ((3, []), (4, ["w"]), (8, ["w"])):
        graph = imported(model([node("Add", ["x", "w"], ["y"])], [of([1, 2, 3, 4], "w")], [X, w], opset=8, ir=ir)).graph
        assert [v.name for v in graph.inputs] == ["x"]
        assert [v.name for v in graph.overridable] == expected
        proto = model([node("Add", ["x", "w"], ["y"])], [of([1, 2, 3, 4], "w")], [X, w], opset=8, ir=ir)
        session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
        assert [v.name for v in session.get_overridable_initializers()] == expected


def test_types__of_inputs__are_spelled_as_onnxruntime_does() -> None:
    kinds = [
        helper.make_tensor_value_info("a", 1, ["N", 3, None]),
        helper.make_tensor_sequence_value_info("b", 7, None),
        helper.make_value_info("o", helper.make_optional_type_proto(helper.make_tensor_type_proto(10, [2]))),
        helper.make_tensor_value_info("m", 16, []),
    ]
    proto = model([node("Relu", ["x"], ["y"])], inputs=[X, *kinds])
    ours = imported(proto).graph.inputs
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    assert [str(v.type) for v in ours] == [v.type for v in session.get_inputs()]
    assert ours[1] == ValueInfo("a", DeclaredTensor(DType.FLOAT, ("N", 3, None)))


def test_initializers__sparse__are_dense_constants() -> None:
    proto = model([node("Add", ["x", "s"], ["y"])])
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(of([5.0, 7.0], "s"), of([1, 3], "", "i8"), [4]))
    constant = imported(proto).graph.constants["s"]
    assert constant.numpy().tolist() == [0, 5, 0, 7] and constant.nbytes == 16
    run(proto, {"x": V})


def test_initializers__in_every_storage__are_read_on_demand() -> None:
    typed = helper.make_tensor("i", 7, [3], [1, -2, 1 << 40])
    words = TensorProto(name="t", data_type=8, dims=[2], string_data=[b"a", b"b"])
    constants = imported(model([node("Relu", ["x"], ["y"])], [of([1.5], "r"), typed, words])).graph.constants
    assert constants["i"].numpy().tolist() == [1, -2, 1 << 40]
    assert bytes(constants["i"].raw()) == np.array([1, -2, 1 << 40]).tobytes()
    assert constants["t"].numpy().tolist() == ["a", "b"]
    assert constants["r"].numpy().tolist() == [1.5]


def test_initializers__external__come_from_files_then_the_folder(tmp_path: Path) -> None:
    def outside(name: str) -> TensorProto:
        made = TensorProto(name=name, data_type=1, dims=[2], data_location=TensorProto.EXTERNAL)
        made.external_data.add(key="location", value=f"{name}.bin")
        return made

    proto = model([node("Relu", ["x"], ["y"])], [outside("p"), outside("q")])
    one, two = np.array([1, 2], "f4").tobytes(), np.array([3, 4], "f4").tobytes()
    (tmp_path / "p.bin").write_bytes(two)
    (tmp_path / "q.bin").write_bytes(two)
    constants = imported(proto, files={"p.bin": one}, folder=tmp_path).graph.constants
    assert constants["p"].numpy().tolist() == [1, 2] and constants["q"].numpy().tolist() == [3, 4]
    with pytest.raises(NoSuchFile, match=r"q\.bin"):
        imported(proto, files={"p.bin": one})
    with pytest.raises(NoSuchFile, match=r"p\.bin"):
        imported(proto)


def test_versions__missing_or_too_new__fail_as_in_onnxruntime() -> None:
    for change in (
        lambda m: m.ClearField("ir_version"),
        lambda m: setattr(m, "ir_version", 99),
        lambda m: m.ClearField("opset_import"),
    ):
        proto = model([node("Relu", ["x"], ["y"])])
        change(proto)
        with pytest.raises(Fail):
            imported(proto)
        with pytest.raises(theirs.Fail):
            ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    with pytest.raises(Fail, match="IR version -1"):
        imported(model([node("Relu", ["x"], ["y"])], ir=-1))


def test_versions__twice_for_a_domain__the_highest_counts() -> None:
    proto = model([node("Relu", ["x"], ["y"])], opset=18)
    proto.opset_import.append(helper.make_opsetid("", 13))
    assert imported(proto).opsets == {"": 18}


def test_versions__none_in_ir_version_2__is_opset_1() -> None:
    proto = model([], outputs=[X], ir=2)
    proto.ClearField("opset_import")
    assert imported(proto).opsets == {"": 1}


def test_graph__missing__is_not_a_model() -> None:
    with pytest.raises(InvalidProtobuf, match="no graph"):
        imported(onnx.ModelProto(ir_version=8))


def test_metadata__of_a_model__equals_onnxruntimes() -> None:
    proto = model([node("Relu", ["x"], ["y"])])
    proto.producer_name, proto.producer_version, proto.domain = "maker", "1.2", "org.example"
    proto.doc_string, proto.graph.doc_string, proto.model_version = "what it does", "how", 7
    helper.set_model_props(proto, {"author": "me", "licence": "free"})
    proto.graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    made = imported(proto)
    m, theirs = (
        made.metadata,
        ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"]).get_modelmeta(),
    )
    assert (m.producer_name, m.graph_name, m.domain) == (theirs.producer_name, theirs.graph_name, theirs.domain)
    assert (m.description, m.graph_description, m.version) == (
        theirs.description,
        theirs.graph_description,
        theirs.version,
    )
    assert m.custom == theirs.custom_metadata_map and m.producer_version == "1.2"
    assert made.denotations == {"x": ("DATA_BATCH",)}


def test_value_info__of_inner_values__is_passed_over() -> None:
    proto = model([node("Abs", ["x"], ["t"]), node("Relu", ["t"], ["y"])])
    plain = imported(proto).graph
    proto.graph.value_info.append(helper.make_tensor_value_info("t", 77, ["N"]))
    assert list(map(repr, imported(proto).graph.nodes)) == list(map(repr, plain.nodes))

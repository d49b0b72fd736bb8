"""Operators and attributes of nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import onnx
import pytest
from onnx import NodeProto, helper

from pyruntime.errors import InvalidGraph, NotImplemented
from pyruntime.ir import Constant, Graph, Node, TensorType
from pyruntime.ops.base import LATEST, Op, op
from tests.onnx.models import (
    X,
    imported,
    model,
    node,
    of,
)


@op("Probe", opsets=range(1, 3), domain="test.importer")
class Probe(Op):
    """Takes an attribute of every kind."""

    number: int
    real: float = 1.0
    text: str = ""
    data: bytes = b""
    numbers: tuple[int, ...] | None = None
    reals: tuple[float, ...] = ()
    texts: tuple[str, ...] = ()
    tensor: Constant | None = None
    body: Graph | None = None
    choice: int | float | None = None
    way: Annotated[str, "up", "down"] = "up"
    width: Annotated[int, 2, 4, 8] | None = None

    def infer(self, x: TensorType, y: TensorType | None = None) -> tuple[TensorType, ...]:
        return (x,)


@op("Picky", opsets=range(1, 3), domain="test.importer")
class Picky(Op):
    """Refuses its attributes with a raw Python error."""

    size: int = 0

    def __post_init__(self) -> None:
        1 // self.size


def probe(
    inputs: Sequence[str] = ("x",), outputs: Sequence[str] = ("y",), op_type: str = "Probe", **attributes: Any
) -> Node:
    proto = model(
        [node(op_type, list(inputs), list(outputs), name="it", domain="test.importer", **attributes)], outputs=[X]
    )
    proto.opset_import.append(helper.make_opsetid("test.importer", 1))
    return imported(proto).graph.nodes[0]


def test_attributes__of_every_kind__become_fields() -> None:
    sparse = helper.make_sparse_tensor(of([2.0], ""), of([1], "", "i8"), [3])
    made = probe(
        number=3,
        real=0.5,
        text="é",
        data=b"\xff",
        numbers=[1, 2],
        reals=[0.5, 1.5],
        texts=["a", "b"],
        tensor=of([1, 2], "w"),
        choice=1.5,
    ).op
    assert isinstance(made, Probe)
    assert (made.number, made.real, made.text, made.data, made.choice) == (3, 0.5, "é", b"\xff", 1.5)
    assert (made.numbers, made.reals, made.texts) == ((1, 2), (0.5, 1.5), ("a", "b"))
    assert made.tensor is not None and made.tensor.numpy().tolist() == [1, 2]
    dense = probe(number=1, tensor=sparse).op
    assert isinstance(dense, Probe) and dense.tensor is not None and dense.tensor.numpy().tolist() == [0, 2, 0]
    empty = probe(number=1).op
    assert isinstance(empty, Probe) and empty.numbers is None


def test_outputs__named_or_not__are_present_or_not() -> None:
    assert probe(number=1, outputs=["y", "", "z"]).op.present == (True, False, True)  # type: ignore[attr-defined]
    assert probe(number=1, inputs=["x", ""]).inputs == ("x",)


@pytest.mark.parametrize(
    ("attributes", "what"),
    [
        ({}, "required attribute 'number' is missing"),
        ({"number": 1.5}, "attribute 'number': expected INT, got FLOAT"),
        ({"number": 1, "real": 2}, "attribute 'real': expected FLOAT, got INT"),
        ({"number": 1, "text": [1]}, "attribute 'text': expected STRING, got INTS"),
        ({"number": 1, "text": b"\xff"}, "not UTF-8"),
        ({"number": 1, "tensor": 1}, "expected TENSOR, got INT"),
        ({"number": 1, "body": of([1], "")}, "expected GRAPH, got TENSOR"),
        ({"number": 1, "choice": "x"}, "expected INT or FLOAT, got STRING"),
        ({"number": 1, "way": 1}, "attribute 'way': expected STRING, got INT"),
        ({"number": 1, "way": "left"}, "Probe: expected way up or down, got left"),
        ({"number": 1, "width": 3}, "Probe: expected width 2, 4 or 8, got 3"),
        ({"number": 1, "other": 2}, "Probe has no attribute 'other'"),
        ({"number": 1, "inputs": []}, "takes 1 to 2 inputs, got 0"),
        ({"number": 1, "inputs": ["x"] * 3}, "takes 1 to 2 inputs, got 3"),
        ({"op_type": "Picky"}, "does not accept its attributes"),
    ],
)
def test_attributes__that_do_not_fit__are_an_invalid_graph_naming_the_node(
    attributes: dict[str, Any], what: str
) -> None:
    with pytest.raises(InvalidGraph, match=what) as caught:
        probe(**attributes)
    assert str(caught.value).startswith("node 'it' (")


@pytest.mark.parametrize(
    ("op_type", "inputs", "what"),
    [
        ("MatMulNBits", ["x", "x", ""], "takes 3 to 6 inputs, got 2"),
        ("MatMulNBits", ["x", "", "x"], "MatMulNBits needs its input 1, which is absent"),
        ("QLinearAdd", ["x", "", "", "x", "x", "", "x"], "QLinearAdd needs its input 1, which is absent"),
        ("FusedMatMul", ["", "x"], "FusedMatMul needs its input 0, which is absent"),
        ("LSTM", ["x"] * 9, "takes 3 to 8 inputs, got 9"),
        ("RNN", ["x", "x", "", "x"], "RNN needs its input 2, which is absent"),
        ("Attention", ["x", "", "x"], "Attention needs its input 1, which is absent"),
    ],
)
def test_inputs__of_operators_that_name_them__that_are_absent_or_too_many__invalid_graph(
    op_type: str, inputs: list[str], what: str
) -> None:
    is_microsoft = op_type in ("MatMulNBits", "QLinearAdd", "FusedMatMul")
    attributes: dict[str, Any] = {"K": 16, "N": 1, "block_size": 16} if op_type == "MatMulNBits" else {}
    domain = "com.microsoft" if is_microsoft else ""
    proto = model([node(op_type, inputs, ["y"], domain=domain, **attributes)], opset=24)
    if is_microsoft:
        proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    with pytest.raises(InvalidGraph, match=what):
        imported(proto)


def test_attributes__twice_or_referring_to_nothing__are_refused() -> None:
    def changed(change: Callable[[NodeProto], object]) -> onnx.ModelProto:
        proto = model([node("Elu", ["x"], ["y"], alpha=2.0)])
        change(proto.graph.node[0])
        return proto

    with pytest.raises(InvalidGraph, match="more than once"):
        imported(changed(lambda n: n.attribute.append(n.attribute[0])))
    with pytest.raises(InvalidGraph, match="outside of one"):
        imported(changed(lambda n: setattr(n.attribute[0], "ref_attr_name", "k")))


def test_operators__unknown__are_all_named_with_node_domain_and_opset() -> None:
    nodes = [
        node("Foo", ["x"], ["a"], name="first"),
        node("Relu", ["a"], ["b"]),
        node("Foo", ["b"], ["c"]),
        node("Bar", ["c"], ["y"], domain="my.ops"),
    ]
    proto = model(nodes)
    proto.opset_import.append(helper.make_opsetid("my.ops", 3))
    with pytest.raises(NotImplemented) as caught:
        imported(proto)
    text = str(caught.value)
    assert "node 'first' (Foo): ai.onnx.Foo (opset 17)" in text and "node 'y' (Bar): my.ops.Bar (opset 3)" in text
    assert text.count("Foo (opset") == 1


def test_operators__of_a_domain_not_imported__are_an_invalid_graph() -> None:
    with pytest.raises(InvalidGraph, match=r"does not import the operator set 'my\.ops'"):
        imported(model([node("Bar", ["x"], ["y"], domain="my.ops")]))


@pytest.mark.parametrize(
    ("op_type", "domain", "opset"),
    [("Relu", "", LATEST), ("Normalizer", "ai.onnx.ml", 1), ("Gelu", "com.microsoft", 1)],
)
def test_operators__of_a_set_that_onnxruntime_assumes__need_no_import(op_type: str, domain: str, opset: int) -> None:
    proto = model([node(op_type, ["x"], ["y"], domain=domain)])
    proto.opset_import[0].CopyFrom(helper.make_opsetid("other", 1))
    op = imported(proto).graph.nodes[0].op
    assert isinstance(op, Op) and op.domain == domain and opset in op.opsets


def test_domain__ai_onnx__is_the_default_one() -> None:
    proto = model([node("Relu", ["x"], ["y"], domain="ai.onnx")])
    assert imported(proto).graph.nodes[0].op.domain == ""
    proto.opset_import[0].domain = "ai.onnx"
    assert imported(proto).opsets == {"": 17}

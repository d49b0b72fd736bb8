"""Models whose nodes have inputs of types that no version of their operators allows, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import AttributeProto, NodeProto, TensorProto, ValueInfoProto, helper
from onnxruntime.capi import onnxruntime_pybind11_state

import pyruntime
from pyruntime.errors import InvalidGraph, OrtError
from pyruntime.ir import Array, DType
from pyruntime.onnx.importer.model import import_model
from pyruntime.onnx.reader import read_model
from pyruntime.ops.base import registered
from pyruntime.ops.custom import CustomOp
from pyruntime.ops.types import TYPES
from tools import operator_types

CPU = ["CPUExecutionProvider"]
DTYPES = [d for d in DType if d not in (DType.FLOAT6E2M3, DType.FLOAT6E3M2)]
Key = tuple[str, str]


def newest() -> dict[Key, Any]:
    """onnxruntime's newest schema of each operator of the table whose inputs are tensors."""
    found: dict[Key, Any] = {}
    for schema in onnxruntime_pybind11_state.get_all_operator_schema():
        key = schema.domain, schema.name
        known = schema.name in TYPES.get(schema.domain, {}) and schema.inputs and not schema.deprecated
        if known and all(allowed(p) for p in schema.inputs):
            found[key] = max(found.get(key, schema), schema, key=lambda s: s.since_version)
    return found


def allowed(parameter: Any) -> list[DType]:
    return [d for d in DTYPES if d.type_string in parameter.types]


SCHEMAS, VERSIONS = newest(), operator_types.schemas()


def attribute(name: str, kind: str) -> AttributeProto:
    """A required attribute of any value."""
    body = helper.make_graph([], "b", [], [])
    tensor = helper.make_tensor("t", TensorProto.FLOAT, [1], [1.0])
    numbers = {"FLOAT": 1.0, "INT": 1, "FLOATS": [1.0], "INTS": [1]}
    values = {"STRING": "s", "STRINGS": ["s"], "GRAPH": body, "TENSOR": tensor, **numbers}
    return helper.make_attribute(name, values[kind])


def model(nodes: list[NodeProto], inputs: list[DType], **opsets: int) -> bytes:
    """A model of undeclared shapes, whose output is that of the last node."""
    given = [helper.make_tensor_value_info(f"x{i}", d.code, None) for i, d in enumerate(inputs)]
    ends = [ValueInfoProto(name=y) for y in nodes[-1].output]
    imports = [helper.make_opsetid(domain, version) for domain, version in {"": 21, **opsets}.items()]
    made = helper.make_model(helper.make_graph(nodes, "g", given, ends), opset_imports=imports, ir_version=11)
    return bytes(made.SerializeToString())


def alone(key: Key, inputs: list[DType]) -> bytes:
    """One node with its required attributes."""
    schema, (domain, name) = SCHEMAS[key], key
    needed = [attribute(a.name, a.type.name) for a in schema.attributes.values() if a.required]
    outputs = [f"y{i}" for i in range(max(schema.min_output, 1))]
    names = [f"x{i}" for i in range(len(inputs))]
    node = NodeProto(op_type=name, domain=domain, input=names, output=outputs, attribute=needed)
    return model([node], inputs, **{domain: schema.since_version})


def theirs(made: bytes) -> bool:
    """Whether onnxruntime refuses the types."""
    try:
        onnxruntime.InferenceSession(made, providers=CPU)
    except Exception as error:
        return "Type Error" in str(error)
    return False


def mine(made: bytes) -> str:
    """The error, or ''."""
    try:
        import_model(read_model(made))
    except OrtError as error:
        return str(error)
    return ""


def of_types(error: str) -> bool:
    return " of type tensor(" in error or "inputs of one type" in error


@pytest.mark.parametrize("key", sorted(SCHEMAS), ids=lambda key: ".".join(filter(None, key)))
def test_node__every_type_of_each_parameter__refused_if_no_version_allows_it(key: Key) -> None:
    inputs = SCHEMAS[key].inputs
    base = {p.typeStr: allowed(p)[0] for p in inputs}
    assert not of_types(mine(alone(key, [base[p.typeStr] for p in inputs])))
    versions = VERSIONS[key]
    for name in base:
        ever = {t for v in versions for p in v[0] for t in p.types}
        for dtype in DTYPES:
            made = alone(key, [{**base, name: dtype}[p.typeStr] for p in inputs])
            refused = mine(made)
            if of_types(refused):
                assert theirs(made), (dtype, refused)
            elif not refused and dtype.type_string not in ever:
                assert not theirs(made), dtype


@pytest.mark.parametrize("key", sorted(SCHEMAS), ids=lambda key: ".".join(filter(None, key)))
def test_node__one_input_of_another_type__refused_only_where_onnxruntime_refuses_it(key: Key) -> None:
    inputs = SCHEMAS[key].inputs
    base = {p.typeStr: allowed(p)[0] for p in inputs}
    for at, parameter in enumerate(inputs):
        types = [base[p.typeStr] for p in inputs]
        for other in allowed(parameter)[1:2]:
            made = alone(key, [*types[:at], other, *types[at + 1 :]])
            assert theirs(made) or not of_types(mine(made)), (at, other)


def node(op_type: str, inputs: str, output: str, **attributes: Any) -> NodeProto:
    return helper.make_node(op_type, inputs.split(), [output], name=f"node {output}", **attributes)


INTS = helper.make_tensor("t", TensorProto.INT64, [1], [1])
REFUSED = {
    "of a node before": [node("Shape", "x0", "s"), node("Sqrt", "s", "y")],
    "of a Cast": [node("Cast", "x0", "s", to=TensorProto.BOOL), node("ArgMax", "s", "y")],
    "of a Constant": [node("Constant", "", "s", value_floats=[1.0]), node("ReduceSum", "x0 s", "y")],
    "of ConstantOfShape": [
        node("Shape", "x0", "d"),
        node("ConstantOfShape", "d", "s", value=INTS),
        node("Sqrt", "s", "y"),
    ],
    "through a chain": [node("Cast", "x0", "s", to=6), node("Neg", "s", "t"), node("Softmax", "t", "y")],
    "of DequantizeLinear": [
        node("Cast", "x0", "s", to=TensorProto.UINT8),
        node("Constant", "", "one", value_float=1.0),
        node("DequantizeLinear", "s one", "t"),
        node("BitwiseNot", "t", "y"),
    ],
    "of another input": [node("Shape", "x0", "s"), node("Add", "x0 s", "y")],
}


@pytest.mark.parametrize("nodes", REFUSED.values(), ids=REFUSED)
def test_inferred_type__not_allowed__refused_when_loaded(nodes: list[NodeProto]) -> None:
    made = model(nodes, [DType.FLOAT])
    assert theirs(made)
    with pytest.raises(InvalidGraph, match=r"^node 'node y' \(\w+\): expected inp.*, got tensor\(\w+\)"):
        pyruntime.InferenceSession(made, providers=CPU)


def test_absent_output__before_an_absent_input__has_no_type() -> None:
    """Layers of a dynamically quantized recurrent network leave out outputs and inputs."""
    layer = helper.make_node("LSTM", ["x0", "x1", "x1"], ["", "", "c"], hidden_size=1)
    after = helper.make_node("LSTM", ["x0", "x1", "x1", "", "", "c"], ["y"], hidden_size=1)
    assert mine(model([layer, after], [DType.FLOAT, DType.FLOAT])) == ""


def branch(name: str, *nodes: NodeProto) -> Any:
    return helper.make_graph(list(nodes), name, [], [helper.make_tensor_value_info("b", TensorProto.FLOAT, None)])


@pytest.mark.parametrize("captured", ["x1", "x0"])
def test_body__captured_value__checked_by_its_type(captured: str) -> None:
    """x0 is float, x1 int64."""
    way = {"then_branch": branch("a", node("Sqrt", captured, "b")), "else_branch": branch("c", node("Exp", "x0", "b"))}
    made = model([node("If", "x2", "y", **way)], [DType.FLOAT, DType.INT64, DType.BOOL])
    assert theirs(made) == (captured == "x1") == of_types(mine(made))


def test_results_of_bodies__known__checked_after_them() -> None:
    way = {"then_branch": branch("a", node("Exp", "x0", "b")), "else_branch": branch("c", node("Exp", "x0", "b"))}
    made = model([node("If", "x1", "z", **way), node("BitwiseNot", "z", "y")], [DType.FLOAT, DType.BOOL])
    assert theirs(made) and of_types(mine(made))


def test_function__refused_node_in_it__named() -> None:
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("f", 1)]
    function = helper.make_function("f", "F", ["a"], ["b"], [node("ArgMax", "a", "b")], opsets[:1])
    call = helper.make_node("F", ["x0"], ["y"], domain="f", name="call")
    given = [helper.make_tensor_value_info("x0", TensorProto.BOOL, [2])]
    graph = helper.make_graph([call], "g", given, [ValueInfoProto(name="y")])
    made = helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=11).SerializeToString()
    assert theirs(made)
    with pytest.raises(
        InvalidGraph, match=r"ArgMax.*expected input 1 .* of type .*tensor\(double\).*, got tensor\(bool"
    ):
        pyruntime.InferenceSession(made, providers=CPU)


def test_custom_operator__name_of_a_known_one__any_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """A custom operator decides itself what it takes."""
    monkeypatch.setitem(registered, ("com.microsoft", "QuickGelu"), [])  # put back at the end

    @pyruntime.custom_op("com.microsoft", "QuickGelu")
    class QuickGelu(CustomOp):
        def evaluate(self, x: Array) -> tuple[Array, ...]:
            return (x + 1,)

    gelu = helper.make_node("QuickGelu", ["x0"], ["y"], domain="com.microsoft")
    made = model([gelu], [DType.INT64], **{"com.microsoft": 1})
    (y,) = pyruntime.InferenceSession(made, providers=CPU).run(None, {"x0": np.array([3])})
    np.testing.assert_array_equal(y, [4])


def test_table__in_the_checkout__is_up_to_date() -> None:
    message = "run `python -m tools.operator_types`"
    assert operator_types.TARGET.read_text() == operator_types.page(), message

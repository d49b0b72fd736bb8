"""Building models, importing them, comparing them with onnxruntime, and checking a graph against its protobuf."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, helper, numpy_helper

from pyruntime.errors import NotImplemented
from pyruntime.ir import Constant, DeclaredTensor, DType, Graph, HostKind, TensorType, known
from pyruntime.onnx.importer.model import ImportedModel, import_model
from pyruntime.onnx.reader import read_model
from pyruntime.ops.interpreter import interpret
from tests.onnx.compare import expected_raw
from tests.oracle import OPTIONS

node = helper.make_node
X = helper.make_tensor_value_info("x", 1, ["N"])
Y = helper.make_tensor_value_info("y", 1, None)
C = helper.make_tensor_value_info("c", 9, [])


def of(values: Any, name: str, dtype: str = "f4") -> TensorProto:
    return numpy_helper.from_array(np.array(values, dtype), name)


def model(
    nodes: Sequence[NodeProto],
    initializers: Sequence[TensorProto] = (),
    inputs: Sequence[onnx.ValueInfoProto] = (X,),
    outputs: Sequence[onnx.ValueInfoProto] = (Y,),
    opset: int = 17,
    ir: int = 8,
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:
    graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs), list(initializers))
    domains = {f.domain for f in functions}
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in sorted(domains))]
    made = helper.make_model(graph, opset_imports=imports, functions=list(functions))
    made.ir_version = ir
    return made


def imported(proto: onnx.ModelProto, **kwargs: Any) -> ImportedModel:
    return import_model(read_model(proto.SerializeToString()), **kwargs)


def run(proto: onnx.ModelProto, feeds: dict[str, np.ndarray[Any, Any]]) -> list[Any]:
    """The outputs through the importer and the NumPy executor, after onnxruntime gave the same."""
    graph = imported(proto).graph
    check_graph(graph)
    typed = {k: known(TensorType(DType.from_numpy(v.dtype), v.shape), v, k) for k, v in feeds.items()}
    made = interpret(graph, typed)
    ours = [made[v.name].value() for v in graph.outputs]
    session = ort.InferenceSession(proto.SerializeToString(), OPTIONS, providers=["CPUExecutionProvider"])
    for mine, theirs in zip(ours, session.run(None, feeds), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)
    return ours


def check_graph(graph: Graph) -> None:
    """Each value is defined once and before it is read, in bodies too; captures are what bodies lack."""
    have = {v.name for v in (*graph.inputs, *graph.overridable)} | set(graph.constants)
    assert not have & set(graph.captures)
    have |= set(graph.captures)
    missing = set()
    for item in graph.nodes:
        bodies = [b for _, b in sorted(vars(item.op).items()) if isinstance(b, Graph)]
        captured = list(dict.fromkeys(name for body in bodies for name in body.captures))
        if captured:
            assert list(item.inputs[-len(captured) :]) == captured
        for body in bodies:
            check_graph(body)
        missing |= {name for name in item.inputs if name and name not in have}
        made = [name for name in item.outputs if name]
        assert not set(made) & have and len(set(made)) == len(made)
        have.update(made)
    assert not missing
    assert {v.name for v in graph.outputs} <= have


def free_names(graph: GraphProto) -> set[str]:
    """Outer values a graph reads, from the protobuf alone."""
    defined = (
        {v.name for v in graph.input}
        | {t.name for t in graph.initializer}
        | {s.values.name for s in graph.sparse_initializer}
    )
    defined |= {name for n in graph.node for name in n.output}
    used = {name for n in graph.node for name in n.input} | {v.name for v in graph.output}
    for n in graph.node:
        for attribute in n.attribute:
            if attribute.type == AttributeProto.GRAPH:
                used |= free_names(attribute.g)
    return used - defined - {""}


def check_against(graph: Graph, proto: GraphProto) -> None:
    """The graph is the protobuf's, name by name; for models without functions whose nodes are in order."""
    initializers = [t.name for t in proto.initializer] + [s.values.name for s in proto.sparse_initializer]
    assert [v.name for v in graph.inputs] == [v.name for v in proto.input if v.name not in initializers]
    assert [v.name for v in graph.outputs] == [v.name for v in proto.output]
    assert list(graph.constants) == initializers
    for tensor in proto.initializer:
        if tensor.data_type != TensorProto.STRING and tensor.data_location != TensorProto.EXTERNAL:
            assert bytes(graph.constants[tensor.name].raw()) == expected_raw(tensor)
            assert graph.constants[tensor.name].type.shape == tuple(tensor.dims)
    assert set(graph.captures) == free_names(proto)
    assert len(graph.nodes) == len(proto.node)
    for made, n in zip(graph.nodes, proto.node, strict=True):
        assert (made.op.op_type, made.op.domain, made.name) == (
            n.op_type,
            n.domain.replace("ai.onnx", "", n.domain == "ai.onnx"),
            n.name,
        )
        assert made.outputs == tuple(n.output)
        given = list(n.input)
        while given and not given[-1]:
            given.pop()
        assert list(made.inputs[: len(given)]) == given
        for attribute in n.attribute:
            check_attribute(getattr(made.op, attribute.name), attribute)


def check_attribute(value: Any, proto: AttributeProto) -> None:
    expected = helper.get_attribute_value(proto)
    if proto.type == AttributeProto.GRAPH:
        check_against(value, expected)
    elif proto.type == AttributeProto.TENSOR:
        assert isinstance(value, Constant) and value.type.shape == tuple(expected.dims)
        if expected.data_type != TensorProto.STRING:
            assert bytes(value.raw()) == expected_raw(expected)
    elif proto.type == AttributeProto.STRING:
        assert value == expected.decode()
    elif proto.type == AttributeProto.STRINGS:
        assert tuple(value) == tuple(s.decode() for s in expected)
    elif proto.type in (AttributeProto.INT, AttributeProto.FLOAT):
        assert value == expected
    elif proto.type in (AttributeProto.INTS, AttributeProto.FLOATS):
        assert tuple(value) == tuple(expected)
    elif proto.type == AttributeProto.TYPE_PROTO:
        assert isinstance(value, DeclaredTensor | HostKind)
    else:
        assert proto.type == AttributeProto.SPARSE_TENSOR and isinstance(value, Constant)


def import_or_name_the_operator(data: bytes) -> bool:
    """Check the import of one model; False where it has operators this runtime lacks, which the error must name."""
    proto = onnx.load_from_string(data)
    try:
        made = import_model(read_model(data))
    except NotImplemented as error:
        assert any(f"({n.op_type})" in str(error) for n in all_nodes(proto))
        return False
    check_graph(made.graph)
    if not proto.functions and all(n.op_type != "Gradient" for n in proto.graph.node):  # these are written out
        check_against(made.graph, proto.graph)
    return True


def all_nodes(proto: onnx.ModelProto) -> list[NodeProto]:
    found: list[NodeProto] = []
    pending = list(proto.graph.node) + [n for f in proto.functions for n in f.node]
    while pending:
        n = pending.pop()
        found.append(n)
        pending += [inner for a in n.attribute if a.HasField("g") for inner in a.g.node]
    return found


def function(
    name: str,
    inputs: list[str],
    outputs: list[str],
    nodes: list[NodeProto],
    attributes: Sequence[str] = (),
    **defaults: Any,
) -> onnx.FunctionProto:
    made = helper.make_function(
        "f", name, inputs, outputs, nodes, [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)], list(attributes)
    )
    made.attribute_proto.extend(helper.make_attribute(k, v) for k, v in defaults.items())
    return made


def referring(made: NodeProto, name: str, to: str, kind: int) -> NodeProto:
    made.attribute.append(AttributeProto(name=name, ref_attr_name=to, type=kind))  # type: ignore[arg-type]
    return made


V = np.array([-2.0, -0.5, 0.0, 3.0], np.float32)


def branch(nodes: list[NodeProto], output: str = "r") -> GraphProto:
    return helper.make_graph(nodes, "branch", [], [helper.make_tensor_value_info(output, 1, None)])

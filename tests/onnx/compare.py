"""Field-by-field comparison of records with the onnx package's protobuf objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from pyruntime.onnx.formats.tensor import SparseTensorRecord, TensorRecord
from pyruntime.onnx.records import (
    AttributeRecord,
    FunctionRecord,
    GraphRecord,
    MapTypeRecord,
    ModelRecord,
    NodeRecord,
    OpaqueTypeRecord,
    OptionalTypeRecord,
    SequenceTypeRecord,
    SparseTensorTypeRecord,
    StringStringEntry,
    TensorTypeRecord,
    TypeRecord,
    ValueInfoRecord,
)

BITS: dict[int, int] = {
    onnx.TensorProto.UINT4: 4,
    onnx.TensorProto.INT4: 4,
    onnx.TensorProto.FLOAT4E2M1: 4,
    onnx.TensorProto.FLOAT6E2M3: 6,
    onnx.TensorProto.FLOAT6E3M2: 6,
    onnx.TensorProto.UINT2: 2,
    onnx.TensorProto.INT2: 2,
}


def _each(records: Sequence[Any], protos: Iterable[Any], compare: Callable[[Any, Any], None]) -> None:
    protos = list(protos)
    assert len(records) == len(protos)
    for record, proto in zip(records, protos, strict=True):
        compare(record, proto)


def compare_model(record: ModelRecord, proto: onnx.ModelProto) -> None:
    """Assert that every field of the record is that of the message."""
    assert record.ir_version == (proto.ir_version if proto.HasField("ir_version") else None)
    assert record.producer_name == proto.producer_name
    assert record.producer_version == proto.producer_version
    assert record.domain == proto.domain
    assert record.model_version == proto.model_version
    assert record.doc_string == proto.doc_string
    assert [(o.domain, o.version) for o in record.opset_import] == [(o.domain, o.version) for o in proto.opset_import]
    _each(record.metadata_props, proto.metadata_props, _compare_entry)
    assert (record.graph is not None) == proto.HasField("graph")
    if record.graph is not None:
        compare_graph(record.graph, proto.graph)
    _each(record.functions, proto.functions, _compare_function)


def _compare_entry(record: StringStringEntry, proto: onnx.StringStringEntryProto) -> None:
    assert (record.key, record.value) == (proto.key, proto.value)


def _compare_function(record: FunctionRecord, proto: onnx.FunctionProto) -> None:
    for field in ("name", "domain", "overload", "doc_string"):
        assert getattr(record, field) == getattr(proto, field)
    for field in ("input", "output", "attribute"):
        assert list(getattr(record, field)) == list(getattr(proto, field))
    assert [(o.domain, o.version) for o in record.opset_import] == [(o.domain, o.version) for o in proto.opset_import]
    _each(record.node, proto.node, _compare_node)
    _each(record.attribute_proto, proto.attribute_proto, _compare_attribute)
    _each(record.metadata_props, proto.metadata_props, _compare_entry)


def compare_graph(record: GraphRecord, proto: onnx.GraphProto) -> None:
    """Assert that every field of the record is that of the message."""
    assert record.name == proto.name
    assert record.doc_string == proto.doc_string
    _each(record.node, proto.node, _compare_node)
    _each(record.input, proto.input, _compare_value_info)
    _each(record.output, proto.output, _compare_value_info)
    _each(record.initializer, proto.initializer, compare_tensor)
    _each(record.sparse_initializer, proto.sparse_initializer, _compare_sparse)
    _each(record.metadata_props, proto.metadata_props, _compare_entry)


def _compare_node(record: NodeRecord, proto: onnx.NodeProto) -> None:
    for field in ("name", "op_type", "domain", "overload"):
        assert getattr(record, field) == getattr(proto, field)
    assert list(record.input) == list(proto.input)
    assert list(record.output) == list(proto.output)
    _each(record.attribute, proto.attribute, _compare_attribute)


def _compare_attribute(record: AttributeRecord, proto: onnx.AttributeProto) -> None:
    assert record.name == proto.name
    assert record.ref_attr_name == proto.ref_attr_name
    if proto.ref_attr_name:
        assert record.value is None
        return
    if proto.type:  # absent in files of IR version 1
        assert record.type.value == int(proto.type)
    kind = record.type.name
    value: Any = record.value
    expected = getattr(proto, _VALUE_FIELD[kind])
    if kind in _COMPARE:
        _COMPARE[kind](value, expected)
    elif kind.rstrip("S") in _COMPARE:
        _each(value, expected, _COMPARE[kind.rstrip("S")])
    elif kind in ("FLOAT", "FLOATS"):
        assert np.float32(value).tobytes() == np.float32(expected).tobytes()
    else:
        assert (tuple(value) == tuple(expected)) if kind.endswith("S") else value == expected


def _compare_value_info(record: ValueInfoRecord, proto: onnx.ValueInfoProto) -> None:
    assert record.name == proto.name
    if proto.HasField("type"):
        _compare_type(record.type, proto.type)
    else:
        assert record.type is None


def _compare_type(record: TypeRecord | None, proto: onnx.TypeProto) -> None:
    kind = proto.WhichOneof("value")
    if kind is None:
        assert record is None
    elif isinstance(record, TensorTypeRecord | SparseTensorTypeRecord):
        assert kind == ("tensor_type" if isinstance(record, TensorTypeRecord) else "sparse_tensor_type")
        tensor = getattr(proto, kind)
        assert record.elem_type == tensor.elem_type
        assert (record.shape is not None) == tensor.HasField("shape")
        dims = list(tensor.shape.dim)
        assert (record.shape or ()) == tuple(getattr(d, d.WhichOneof("value") or "", None) for d in dims)
        denotations = tuple(d.denotation for d in dims)
        assert record.denotations == (denotations if any(denotations) else ())
    elif isinstance(record, SequenceTypeRecord | OptionalTypeRecord):
        assert kind == ("sequence_type" if isinstance(record, SequenceTypeRecord) else "optional_type")
        _compare_type(record.elem_type, getattr(proto, kind).elem_type)
    elif isinstance(record, MapTypeRecord):
        assert kind == "map_type"
        assert record.key_type == proto.map_type.key_type
        _compare_type(record.value_type, proto.map_type.value_type)
    else:
        assert isinstance(record, OpaqueTypeRecord) and kind == "opaque_type"
        assert (record.domain, record.name) == (proto.opaque_type.domain, proto.opaque_type.name)


def _compare_sparse(record: SparseTensorRecord, proto: onnx.SparseTensorProto) -> None:
    assert record.dims == tuple(proto.dims)
    assert record.values is not None and record.indices is not None
    compare_tensor(record.values, proto.values)
    compare_tensor(record.indices, proto.indices)


def expected_raw(proto: onnx.TensorProto) -> bytes:
    """raw_data of a tensor in any storage form, as the onnx package reads it."""
    array = numpy_helper.to_array(proto)
    bits = BITS.get(int(proto.data_type))
    if bits is None:
        return array.tobytes()
    stream = 0
    for index, value in enumerate(array.reshape(-1).view(np.uint8).tolist()):
        stream |= (value & ((1 << bits) - 1)) << (index * bits)
    return stream.to_bytes(-(-array.size * bits // 8), "little")


def compare_tensor(record: TensorRecord, proto: onnx.TensorProto) -> None:
    """Assert that name, type, shape and every byte of the elements are those of the message."""
    assert record.name == proto.name
    assert record.data_type == proto.data_type
    assert record.dims == tuple(proto.dims)
    assert record.is_external == (proto.data_location == onnx.TensorProto.EXTERNAL)
    assert record.external == tuple((e.key, e.value) for e in proto.external_data)
    if record.is_external:
        return
    if proto.data_type == onnx.TensorProto.STRING:
        assert record.strings() == list(proto.string_data)
        assert record.to_numpy().shape == tuple(proto.dims)
        assert record.to_numpy().reshape(-1).tolist() == [s.decode() for s in proto.string_data]
        return
    raw = expected_raw(proto)
    assert record.nbytes == len(raw)
    assert bytes(record.raw_bytes()) == raw
    span = record.raw_span()
    if proto.HasField("raw_data"):
        assert span is not None
    if span is not None:
        assert bytes(span.read()) == raw
    array = numpy_helper.to_array(proto)
    carrier = record.to_numpy()
    assert carrier.shape == array.shape
    if array.dtype.kind not in "c":
        np.testing.assert_array_equal(carrier.astype(np.float64), array.astype(np.float64))


def tensors_of(graph: GraphRecord) -> Iterator[TensorRecord]:
    """Every tensor in a graph: initializers, sparse ones, attributes, subgraphs."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (t for t in (sparse.values, sparse.indices) if t is not None)
    for node in graph.node:
        for attribute in node.attribute:
            values = attribute.value if isinstance(attribute.value, tuple) else (attribute.value,)
            for value in values:
                if isinstance(value, TensorRecord):
                    yield value
                elif isinstance(value, GraphRecord):
                    yield from tensors_of(value)


_VALUE_FIELD = {
    "FLOAT": "f",
    "INT": "i",
    "STRING": "s",
    "TENSOR": "t",
    "GRAPH": "g",
    "FLOATS": "floats",
    "INTS": "ints",
    "STRINGS": "strings",
    "TENSORS": "tensors",
    "GRAPHS": "graphs",
    "SPARSE_TENSOR": "sparse_tensor",
    "SPARSE_TENSORS": "sparse_tensors",
    "TYPE_PROTO": "tp",
    "TYPE_PROTOS": "type_protos",
}
_COMPARE: dict[str, Callable[[Any, Any], None]] = {
    "TENSOR": compare_tensor,
    "GRAPH": compare_graph,
    "SPARSE_TENSOR": _compare_sparse,
    "TYPE_PROTO": _compare_type,
}

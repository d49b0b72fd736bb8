"""onnx.proto as tables: the field numbers of each message, and the record attributes they become.

Fields that inference does not need are not listed, so they are skipped: types of intermediate values (inferred anyway,
and most of an exported model's messages), documentation of inner objects, training information, multi-device
annotations. Source: onnx.proto, IR versions 1 to 14.
"""

from __future__ import annotations

from pyruntime.onnx.formats.fields import (
    BYTES,
    FLOAT,
    INT32,
    INT64,
    MANY_BYTES,
    MANY_FLOAT,
    MANY_INT64,
    MANY_MESSAGE,
    MANY_STRING,
    MESSAGE,
    RUN_BYTES,
    RUN_FIXED32,
    RUN_FIXED64,
    RUN_VARINT,
    SPAN,
    STRING,
    Field,
    Message,
)
from pyruntime.onnx.formats.protobuf import Run
from pyruntime.onnx.formats.source import ByteSource
from pyruntime.onnx.formats.tensor import SparseTensorRecord, TensorRecord
from pyruntime.onnx.records import (
    FunctionRecord,
    GraphRecord,
    MapTypeRecord,
    ModelRecord,
    NodeRecord,
    OpaqueTypeRecord,
    OperatorSetId,
    OptionalTypeRecord,
    SequenceTypeRecord,
    Shape,
    SparseTensorTypeRecord,
    StringStringEntry,
    TypeRecord,
    ValueInfoRecord,
    attribute_record,
    pair,
    shape_of,
    tensor_type,
)

__all__ = ["MODEL", "TENSOR"]


def _text(attribute: str) -> Field:
    return Field(attribute, STRING, default="")


def _tensor_record(
    source: ByteSource,
    dims: tuple[int, ...],
    data_type: int,
    segment: tuple[()] | None,
    runs: tuple[Run, ...],
    name: str,
    raw: tuple[int, int] | None,
    external: tuple[tuple[str, str], ...],
    data_location: int,
) -> TensorRecord:
    return TensorRecord(source, dims, data_type, runs, name, raw, external, data_location, segment is not None)


def _sparse_type(elem_type: int, shape: Shape | None) -> SparseTensorTypeRecord:
    return SparseTensorTypeRecord(elem_type, *shape) if shape else SparseTensorTypeRecord(elem_type, None)


def _type(*kinds: TypeRecord | None) -> TypeRecord | None:
    return next((kind for kind in kinds if kind is not None), None)


_ENTRY = Message("StringStringEntryProto", StringStringEntry)
_EXTERNAL = Message("StringStringEntryProto", pair)
_OPSET = Message("OperatorSetIdProto", OperatorSetId)
_DIM = Message("TensorShapeProto.Dimension", pair)
_SHAPE = Message("TensorShapeProto", shape_of)
_TENSOR_TYPE = Message("TypeProto.Tensor", tensor_type)
_SPARSE_TYPE = Message("TypeProto.SparseTensor", _sparse_type)
_SEQUENCE_TYPE = Message("TypeProto.Sequence", SequenceTypeRecord)
_OPTIONAL_TYPE = Message("TypeProto.Optional", OptionalTypeRecord)
_MAP_TYPE = Message("TypeProto.Map", MapTypeRecord)
_OPAQUE_TYPE = Message("TypeProto.Opaque", OpaqueTypeRecord)
_TYPE = Message("TypeProto", _type)
_VALUE_INFO = Message("ValueInfoProto", ValueInfoRecord)
_SEGMENT = Message("TensorProto.Segment", tuple)
TENSOR = Message("TensorProto", _tensor_record, sourced=True)
_SPARSE_TENSOR = Message("SparseTensorProto", SparseTensorRecord)
_ATTRIBUTE = Message("AttributeProto", attribute_record)
_NODE = Message("NodeProto", NodeRecord)
_GRAPH = Message("GraphProto", GraphRecord)
_FUNCTION = Message("FunctionProto", FunctionRecord)
MODEL = Message("ModelProto", ModelRecord)

for _pairs in (_ENTRY, _EXTERNAL):
    _pairs.declare({1: _text("key"), 2: _text("value")})
_OPSET.declare({1: _text("domain"), 2: Field("version", INT64, default=0)})
_DIM.declare({1: Field("size", INT64), 2: Field("size", STRING), 3: _text("denotation")})
_SHAPE.declare({1: Field("dims", MANY_MESSAGE, _DIM)})
for _dense in (_TENSOR_TYPE, _SPARSE_TYPE):
    _dense.declare({1: Field("elem_type", INT32, default=0), 2: Field("shape", MESSAGE, _SHAPE)})
for _wrapper in (_SEQUENCE_TYPE, _OPTIONAL_TYPE):
    _wrapper.declare({1: Field("elem_type", MESSAGE, _TYPE)})
_MAP_TYPE.declare({1: Field("key_type", INT32, default=0), 2: Field("value_type", MESSAGE, _TYPE)})
_OPAQUE_TYPE.declare({1: _text("domain"), 2: _text("name")})
_KINDS = {
    1: ("tensor", _TENSOR_TYPE),
    4: ("sequence", _SEQUENCE_TYPE),
    5: ("map", _MAP_TYPE),
    7: ("opaque", _OPAQUE_TYPE),
    8: ("sparse_tensor", _SPARSE_TYPE),
    9: ("optional", _OPTIONAL_TYPE),
}
_ALL_KINDS = tuple(name for name, _ in _KINDS.values())
_TYPE.declare({n: Field(name, MESSAGE, kind, oneof=_ALL_KINDS) for n, (name, kind) in _KINDS.items()})
_VALUE_INFO.declare({1: _text("name"), 2: Field("type", MESSAGE, _TYPE)})
_SEGMENT.declare({})
TENSOR.declare(
    {
        1: Field("dims", MANY_INT64),
        2: Field("data_type", INT32, default=0),
        3: Field("segment", MESSAGE, _SEGMENT),
        4: Field("runs", RUN_FIXED32),
        5: Field("runs", RUN_VARINT),
        6: Field("runs", RUN_BYTES),
        7: Field("runs", RUN_VARINT),
        8: _text("name"),
        9: Field("raw", SPAN),
        10: Field("runs", RUN_FIXED64),
        11: Field("runs", RUN_VARINT),
        13: Field("external", MANY_MESSAGE, _EXTERNAL),
        14: Field("data_location", INT32, default=0),
    }
)
_SPARSE_TENSOR.declare(
    {1: Field("values", MESSAGE, TENSOR), 2: Field("indices", MESSAGE, TENSOR), 3: Field("dims", MANY_INT64)}
)
_ATTRIBUTE.declare(
    {
        1: _text("name"),
        20: Field("type", INT32, default=0),
        21: _text("ref_attr_name"),
        2: Field("f", FLOAT),
        3: Field("i", INT64),
        4: Field("s", BYTES),
        5: Field("t", MESSAGE, TENSOR),
        6: Field("g", MESSAGE, _GRAPH),
        7: Field("floats", MANY_FLOAT),
        8: Field("ints", MANY_INT64),
        9: Field("strings", MANY_BYTES),
        10: Field("tensors", MANY_MESSAGE, TENSOR),
        11: Field("graphs", MANY_MESSAGE, _GRAPH),
        14: Field("tp", MESSAGE, _TYPE),
        15: Field("type_protos", MANY_MESSAGE, _TYPE),
        22: Field("sparse_tensor", MESSAGE, _SPARSE_TENSOR),
        23: Field("sparse_tensors", MANY_MESSAGE, _SPARSE_TENSOR),
    }
)
_NODE.declare(
    {
        1: Field("input", MANY_STRING),
        2: Field("output", MANY_STRING),
        3: _text("name"),
        4: _text("op_type"),
        5: Field("attribute", MANY_MESSAGE, _ATTRIBUTE),
        7: _text("domain"),
        8: _text("overload"),
    }
)
_GRAPH.declare(
    {
        1: Field("node", MANY_MESSAGE, _NODE),
        2: _text("name"),
        5: Field("initializer", MANY_MESSAGE, TENSOR),
        10: _text("doc_string"),
        11: Field("input", MANY_MESSAGE, _VALUE_INFO),
        12: Field("output", MANY_MESSAGE, _VALUE_INFO),
        15: Field("sparse_initializer", MANY_MESSAGE, _SPARSE_TENSOR),
        16: Field("metadata_props", MANY_MESSAGE, _ENTRY),
    }
)
_FUNCTION.declare(
    {
        1: _text("name"),
        4: Field("input", MANY_STRING),
        5: Field("output", MANY_STRING),
        6: Field("attribute", MANY_STRING),
        7: Field("node", MANY_MESSAGE, _NODE),
        8: _text("doc_string"),
        9: Field("opset_import", MANY_MESSAGE, _OPSET),
        10: _text("domain"),
        11: Field("attribute_proto", MANY_MESSAGE, _ATTRIBUTE),
        13: _text("overload"),
        14: Field("metadata_props", MANY_MESSAGE, _ENTRY),
    }
)
MODEL.declare(
    {
        1: Field("ir_version", INT64),
        2: _text("producer_name"),
        3: _text("producer_version"),
        4: _text("domain"),
        5: Field("model_version", INT64, default=0),
        6: _text("doc_string"),
        7: Field("graph", MESSAGE, _GRAPH),
        8: Field("opset_import", MANY_MESSAGE, _OPSET),
        14: Field("metadata_props", MANY_MESSAGE, _ENTRY),
        25: Field("functions", MANY_MESSAGE, _FUNCTION),
    }
)

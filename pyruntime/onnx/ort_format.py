"""Reader of onnxruntime's file format (.ort), which gives the records of an ONNX model.

onnxruntime saves the format after its passes: a graph of operators of ONNX and of onnxruntime, without functions.
Kernel names, edges and runtime optimizations in the file are ignored.
Source: onnxruntime, core/flatbuffers/schema/ort.fbs and README.md (format versions 1 to 6).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pyruntime.errors import InvalidProtobuf, NotImplemented
from pyruntime.onnx.formats.flatbuffers import (
    BYTES,
    FLOAT,
    INT8,
    INT32,
    INT64,
    SPAN,
    TEXT,
    FlatReader,
    Later,
    Many,
    Table,
    Union,
)
from pyruntime.onnx.formats.protobuf import Limits, Run
from pyruntime.onnx.formats.source import ByteSource, MemorySource
from pyruntime.onnx.formats.tensor import STRING_DATA, SparseTensorRecord, TensorRecord
from pyruntime.onnx.records import (
    AttributeRecord,
    DimRecord,
    GraphRecord,
    MapTypeRecord,
    ModelRecord,
    NodeRecord,
    OperatorSetId,
    SequenceTypeRecord,
    StringStringEntry,
    TypeRecord,
    ValueInfoRecord,
    attribute_record,
    pair,
    shape_of,
    tensor_type,
)
from pyruntime.onnx.writer import joined

__all__ = ["SIGNATURE", "read_ort_model"]

SIGNATURE = (4, b"ORTM")
"""Offset and bytes that identify the format."""
_FUSED = 1
_SIZE, _SYMBOL = 1, 2
_NO_VERSION = (1 << 63) - 1


def read_ort_model(source: ByteSource, limits: Limits) -> ModelRecord:
    """Read the model in `source`.

    Raises:
        InvalidProtobuf: the bytes are not an ORT-format model, or exceed `limits`.
        InvalidGraph: an attribute's value does not match its type.
        NotImplemented: nodes compiled for a device, or weights in another file.
    """
    model = FlatReader(source, limits).root(_SESSION)
    if not isinstance(model, ModelRecord):
        raise InvalidProtobuf("the ORT-format file has no model; check that it is the right file")
    return model


def _dim_value(kind: int, size: int, symbol: str) -> DimRecord:
    return {_SIZE: size, _SYMBOL: symbol or None}.get(kind)


def _only(value: Any) -> Any:
    return value


def _tensor(
    source: ByteSource,
    name: str,
    dims: tuple[int, ...],
    data_type: int,
    raw: tuple[int, int] | None,
    strings: tuple[bytes, ...],
    elsewhere: int,
) -> TensorRecord:
    if elsewhere >= 0:
        raise NotImplemented(
            f"tensor {name!r} of the ORT-format model is in another file (at byte {elsewhere} of it), as those of "
            "training checkpoints are; use the .onnx model it was made from"
        )
    if not strings:
        return TensorRecord(source, dims, data_type, (), name, raw, (), 0, False)
    text = joined(STRING_DATA, strings)
    return TensorRecord(
        MemorySource(text), dims, data_type, (Run(STRING_DATA, 0, len(text), False),), name, None, (), 0, False
    )


def _attribute(name: str, kind: int, *values: Any) -> AttributeRecord:
    return attribute_record(name, kind, "", *values, None, (), None, ())


def _node(
    name: str,
    domain: str,
    op_type: str,
    kind: int,
    provider: str,
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    attributes: tuple[AttributeRecord, ...],
) -> NodeRecord:
    if kind == _FUSED:
        raise NotImplemented(
            f"node {name!r} ({op_type}) of the ORT-format model was compiled for {provider or 'a device'}; "
            "use the .onnx model it was made from, or convert that without this execution provider"
        )
    return NodeRecord(inputs, outputs, name, op_type, attributes, domain, "")


def _graph(
    initializers: tuple[TensorRecord, ...],
    values: tuple[tuple[str, Callable[[], TypeRecord] | None], ...],
    nodes: tuple[NodeRecord, ...],
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    sparse: tuple[SparseTensorRecord, ...],
) -> GraphRecord:
    types = dict(values)

    def stated(names: tuple[str, ...]) -> tuple[ValueInfoRecord, ...]:
        found = [(name, types.get(name)) for name in names]
        return tuple([ValueInfoRecord(name, kind() if kind else None) for name, kind in found])

    return GraphRecord(nodes, "", initializers, "", stated(inputs), stated(outputs), sparse, ())


def _model(
    ir_version: int,
    opsets: tuple[OperatorSetId, ...],
    producer_name: str,
    producer_version: str,
    domain: str,
    version: int,
    description: str,
    graph: GraphRecord | None,
    graph_description: str,
    metadata: tuple[StringStringEntry, ...],
) -> ModelRecord:
    if graph is not None:
        graph = replace(graph, doc_string=graph_description)
    version = 0 if version == _NO_VERSION else version
    return ModelRecord(
        ir_version, producer_name, producer_version, domain, version, description, graph, opsets, metadata, ()
    )


_SESSION = Table("InferenceSession", _only)
_MODEL = Table("Model", _model)
_OPSET = Table("OperatorSetId", OperatorSetId)
_ENTRY = Table("StringStringEntry", StringStringEntry)
_GRAPH = Table("Graph", _graph)
_NODE = Table("Node", _node)
_ATTRIBUTE = Table("Attribute", _attribute)
_TENSOR = Table("Tensor", _tensor, sourced=True)
_SPARSE_TENSOR = Table("SparseTensor", SparseTensorRecord)
_VALUE_INFO = Table("ValueInfo", pair)
_TYPE = Table("TypeInfo", _only)
_TENSOR_TYPE = Table("TensorTypeAndShape", tensor_type)
_SEQUENCE_TYPE = Table("SequenceType", SequenceTypeRecord)
_MAP_TYPE = Table("MapType", MapTypeRecord)
_SHAPE = Table("Shape", shape_of)
_DIM = Table("Dimension", pair)
_DIM_VALUE = Table("DimensionValue", _dim_value)

_SESSION.declare([(1, _MODEL, None)])
_MODEL.declare(
    [
        (0, INT64, 0),
        (1, Many(_OPSET), ()),
        (2, TEXT, ""),
        (3, TEXT, ""),
        (4, TEXT, ""),
        (5, INT64, 0),
        (6, TEXT, ""),
        (7, _GRAPH, None),
        (8, TEXT, ""),
        (9, Many(_ENTRY), ()),
    ]
)
_OPSET.declare([(0, TEXT, ""), (1, INT64, 0)])
_ENTRY.declare([(0, TEXT, ""), (1, TEXT, "")])
_GRAPH.declare(
    [
        (0, Many(_TENSOR), ()),
        (1, Many(_VALUE_INFO), ()),
        (2, Many(_NODE), ()),
        (5, Many(TEXT), ()),
        (6, Many(TEXT), ()),
        (7, Many(_SPARSE_TENSOR), ()),
    ]
)
_NODE.declare(
    [
        (0, TEXT, ""),
        (2, TEXT, ""),
        (5, TEXT, ""),
        (6, INT32, 0),
        (7, TEXT, ""),
        (8, Many(TEXT), ()),
        (9, Many(TEXT), ()),
        (10, Many(_ATTRIBUTE), ()),
    ]
)
_ATTRIBUTE.declare(
    [
        (0, TEXT, ""),
        (2, INT32, 0),
        (3, FLOAT, None),
        (4, INT64, None),
        (5, BYTES, None),
        (6, _TENSOR, None),
        (7, _GRAPH, None),
        (8, Many(FLOAT), ()),
        (9, Many(INT64), ()),
        (10, Many(BYTES), ()),
        (11, Many(_TENSOR), ()),
        (12, Many(_GRAPH), ()),
    ]
)
_TENSOR.declare(
    [
        (0, TEXT, ""),
        (2, Many(INT64), ()),
        (3, INT32, 0),
        (4, SPAN, None),
        (5, Many(BYTES), ()),
        (6, INT64, -1),
    ]
)
_SPARSE_TENSOR.declare([(0, _TENSOR, None), (1, _TENSOR, None), (2, Many(INT64), ())])
_VALUE_INFO.declare([(0, TEXT, ""), (2, Later(_TYPE), None)])
_TYPE.declare([(2, Union({1: _TENSOR_TYPE, 2: _SEQUENCE_TYPE, 3: _MAP_TYPE}), None)])
_TENSOR_TYPE.declare([(0, INT32, 0), (1, _SHAPE, None)])
_SEQUENCE_TYPE.declare([(0, _TYPE, None)])
_MAP_TYPE.declare([(0, INT32, 0), (1, _TYPE, None)])
_SHAPE.declare([(0, Many(_DIM), ())])
_DIM.declare([(0, _DIM_VALUE, None), (1, TEXT, "")])
_DIM_VALUE.declare([(0, INT8, 0), (1, INT64, 0), (2, TEXT, "")])

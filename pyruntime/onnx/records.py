"""Records of an ONNX model as stored in the file, not validated against the rules of ONNX.

Names follow onnx.proto. Types of intermediate values, documentation of inner objects, training information and
multi-device annotations are left out. Tensor data stays in the file (see `tensor.py`).
Source: onnx.proto (ModelProto and its messages).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias

from pyruntime.errors import InvalidGraph
from pyruntime.ir import Floats, Ints, Strings
from pyruntime.onnx.formats.tensor import SparseTensorRecord, TensorRecord

__all__ = [
    "AttributeRecord",
    "AttributeType",
    "AttributeValue",
    "DimRecord",
    "FunctionRecord",
    "GraphRecord",
    "MapTypeRecord",
    "ModelRecord",
    "NodeRecord",
    "OpaqueTypeRecord",
    "OperatorSetId",
    "OptionalTypeRecord",
    "SequenceTypeRecord",
    "SparseTensorTypeRecord",
    "StringStringEntry",
    "TensorTypeRecord",
    "TypeRecord",
    "ValueInfoRecord",
]

DimRecord: TypeAlias = int | str | None
"""A dimension: its size, its symbol, or None if unknown."""


@dataclass(frozen=True, slots=True)
class StringStringEntry:
    """A key and its value."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class OperatorSetId:
    """A version of the operator set of a domain; the empty domain is ai.onnx."""

    domain: str
    version: int


@dataclass(frozen=True, slots=True)
class TensorTypeRecord:
    """Element type (a TensorProto code) and shape; shape None: any rank.

    `denotations` has each dimension's denotation ('DATA_BATCH') or ''; it is empty where no dimension has one.
    """

    elem_type: int
    shape: tuple[DimRecord, ...] | None
    denotations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SparseTensorTypeRecord:
    """Element type and shape of a sparse tensor, as in `TensorTypeRecord`."""

    elem_type: int
    shape: tuple[DimRecord, ...] | None
    denotations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SequenceTypeRecord:
    """A list of values of one type."""

    elem_type: TypeRecord | None


@dataclass(frozen=True, slots=True)
class OptionalTypeRecord:
    """A value of a type, or none."""

    elem_type: TypeRecord | None


@dataclass(frozen=True, slots=True)
class MapTypeRecord:
    """A mapping from keys of a type (a TensorProto code) to values of a type."""

    key_type: int
    value_type: TypeRecord | None


@dataclass(frozen=True, slots=True)
class OpaqueTypeRecord:
    """A type defined by its domain alone."""

    domain: str
    name: str


TypeRecord: TypeAlias = (
    TensorTypeRecord
    | SparseTensorTypeRecord
    | SequenceTypeRecord
    | OptionalTypeRecord
    | MapTypeRecord
    | OpaqueTypeRecord
)


@dataclass(frozen=True, slots=True)
class ValueInfoRecord:
    """Name of a value, and its type if declared."""

    name: str
    type: TypeRecord | None


class AttributeType(IntEnum):
    """AttributeProto.AttributeType."""

    UNDEFINED = 0
    FLOAT = 1
    INT = 2
    STRING = 3
    TENSOR = 4
    GRAPH = 5
    FLOATS = 6
    INTS = 7
    STRINGS = 8
    TENSORS = 9
    GRAPHS = 10
    SPARSE_TENSOR = 11
    SPARSE_TENSORS = 12
    TYPE_PROTO = 13
    TYPE_PROTOS = 14


_OneValue: TypeAlias = "int | float | bytes | TensorRecord | SparseTensorRecord | GraphRecord | TypeRecord"
AttributeValue: TypeAlias = "_OneValue | tuple[_OneValue, ...] | Ints | Floats | Strings[bytes] | None"


@dataclass(frozen=True, slots=True)
class AttributeRecord:
    """A named attribute: its type and its value.

    With `ref_attr_name` it refers to that attribute of the enclosing function, and `value` is None.
    """

    name: str
    type: AttributeType
    value: AttributeValue
    ref_attr_name: str = ""


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """An operator or function applied to named values; '' is an omitted input or output."""

    input: tuple[str, ...]
    output: tuple[str, ...]
    name: str
    op_type: str
    attribute: tuple[AttributeRecord, ...]
    domain: str
    overload: str


@dataclass(frozen=True, slots=True)
class GraphRecord:
    """Nodes connected by named values, and the tensors of initializers."""

    node: tuple[NodeRecord, ...]
    name: str
    initializer: tuple[TensorRecord, ...]
    doc_string: str
    input: tuple[ValueInfoRecord, ...]
    output: tuple[ValueInfoRecord, ...]
    sparse_initializer: tuple[SparseTensorRecord, ...]
    metadata_props: tuple[StringStringEntry, ...]


@dataclass(frozen=True, slots=True)
class FunctionRecord:
    """A model-local function; `attribute` names parameters without default, `attribute_proto` gives defaults."""

    name: str
    input: tuple[str, ...]
    output: tuple[str, ...]
    attribute: tuple[str, ...]
    node: tuple[NodeRecord, ...]
    doc_string: str
    opset_import: tuple[OperatorSetId, ...]
    domain: str
    attribute_proto: tuple[AttributeRecord, ...]
    overload: str
    metadata_props: tuple[StringStringEntry, ...]


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """A model file. `ir_version` and `graph` are None where the file has none."""

    ir_version: int | None
    producer_name: str
    producer_version: str
    domain: str
    model_version: int
    doc_string: str
    graph: GraphRecord | None
    opset_import: tuple[OperatorSetId, ...]
    metadata_props: tuple[StringStringEntry, ...]
    functions: tuple[FunctionRecord, ...]


# Fields of AttributeProto with values, in the order of their numbers.
_SLOTS = (
    AttributeType.FLOAT,
    AttributeType.INT,
    AttributeType.STRING,
    AttributeType.TENSOR,
    AttributeType.GRAPH,
    AttributeType.FLOATS,
    AttributeType.INTS,
    AttributeType.STRINGS,
    AttributeType.TENSORS,
    AttributeType.GRAPHS,
    AttributeType.TYPE_PROTO,
    AttributeType.TYPE_PROTOS,
    AttributeType.SPARSE_TENSOR,
    AttributeType.SPARSE_TENSORS,
)
_SLOT_OF_CODE = {type_.value: (slot, type_) for slot, type_ in enumerate(_SLOTS)}
# Values of scalars that an encoder omitted because they are zero.
_ZERO: dict[AttributeType, AttributeValue] = {
    AttributeType.FLOAT: 0.0,
    AttributeType.INT: 0,
    AttributeType.STRING: b"",
}


Shape: TypeAlias = tuple[tuple[DimRecord, ...], tuple[str, ...]]
"""Dimensions, and their denotations, which may be empty."""


def pair(first: Any, second: Any) -> tuple[Any, Any]:
    """Record of a message with two fields that has no class."""
    return first, second


def shape_of(dims: tuple[tuple[DimRecord, str], ...]) -> Shape:
    """Return the shape of (dimension, denotation) pairs; denotation '' means none."""
    sizes = tuple([size for size, _ in dims])
    denotations = tuple([denotation for _, denotation in dims])
    return sizes, denotations if any(denotations) else ()


def tensor_type(elem_type: int, shape: Shape | None) -> TensorTypeRecord:
    """Return the type of a dense tensor; shape None: any rank."""
    return TensorTypeRecord(elem_type, *shape) if shape else TensorTypeRecord(elem_type, None)


def attribute_record(name: str, type_code: int, ref_attr_name: str, *values: Any) -> AttributeRecord:
    """Return the attribute of an AttributeProto; `values` are in the order of the field numbers.

    Files of IR version 1 have no type, which then follows from the field with a value.

    Raises:
        InvalidGraph: a type that ONNX does not define, or a value of another type than the declared one.
    """
    if type_code == 0:
        filled = [_SLOTS[slot].value for slot, value in enumerate(values) if value is not None and value != ()]
        if len(filled) == 1:
            type_code = filled[0]
        elif ref_attr_name:
            return AttributeRecord(name, AttributeType.UNDEFINED, None, ref_attr_name)
    if type_code not in _SLOT_OF_CODE:
        raise InvalidGraph(
            f"attribute {name!r} has type {type_code}, which ONNX does not define; export the model again"
        )
    slot, type_ = _SLOT_OF_CODE[type_code]
    value = values[slot]
    if ref_attr_name:
        return AttributeRecord(name, type_, None, ref_attr_name)
    if value is None or value == ():
        other = [_SLOTS[i].name for i, v in enumerate(values) if v is not None and v != ()]
        value = _ZERO.get(type_, value)
        if other or value is None:
            found = " and ".join(other) or "none"
            raise InvalidGraph(
                f"attribute {name!r}: its type is {type_.name}, its value {found}; export the model again"
            )
    return AttributeRecord(name, type_, value)

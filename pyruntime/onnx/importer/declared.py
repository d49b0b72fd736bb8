"""Conversion of a model file's types, tensors and value infos to those of the graph."""

from __future__ import annotations

from collections.abc import Callable

from pyruntime.errors import Fail
from pyruntime.ir import Constant, DeclaredDim, DeclaredTensor, DeclaredType, DType, HostKind, TensorType, ValueInfo
from pyruntime.onnx.formats.external import ExternalData
from pyruntime.onnx.formats.source import Buffer, ByteSource
from pyruntime.onnx.formats.tensor import SparseTensorRecord, TensorRecord, element_type
from pyruntime.onnx.records import (
    DimRecord,
    MapTypeRecord,
    OpaqueTypeRecord,
    OptionalTypeRecord,
    SequenceTypeRecord,
    SparseTensorTypeRecord,
    TensorTypeRecord,
    TypeRecord,
    ValueInfoRecord,
)

__all__ = ["Constants", "declared_type", "value_info"]


class _Decoded(ByteSource):
    """raw_data that is decoded on first read."""

    def __init__(self, nbytes: int, decode: Callable[[], Buffer]) -> None:
        super().__init__(nbytes)
        self._decode = decode
        self._raw: memoryview | None = None

    def fetch(self, offset: int, length: int) -> Buffer:
        if self._raw is None:
            self._raw = memoryview(self._decode())
        return self._raw[offset : offset + length]


class Constants:
    """Creates constants from tensor records, once for each record, however often functions repeat it."""

    def __init__(self, external: ExternalData | None) -> None:
        self._external = external
        self._made: dict[int, tuple[TensorRecord | SparseTensorRecord, Constant]] = {}

    def of(self, tensor: TensorRecord | SparseTensorRecord) -> Constant:
        """Return the tensor as a constant: a span of the file if stored as raw_data, else decoded on demand.

        Raises:
            Fail, NotImplemented, NoSuchFile: as `TensorRecord.raw_span` does.
        """
        if id(tensor) not in self._made:
            made = self._dense(tensor) if isinstance(tensor, TensorRecord) else self._sparse(tensor)
            self._made[id(tensor)] = tensor, made
        return self._made[id(tensor)][1]

    def _dense(self, tensor: TensorRecord) -> Constant:
        dtype, external = tensor.dtype, self._external
        if dtype is DType.STRING:
            return Constant.from_array(tensor.to_numpy(external), dtype)
        span = tensor.raw_span(external)
        kind = TensorType(dtype, tensor.shape)
        if span is not None:
            return Constant(kind, span.source, span.offset)
        return Constant(kind, _Decoded(kind.nbytes, lambda: tensor.raw_bytes(external)))

    def _sparse(self, tensor: SparseTensorRecord) -> Constant:
        dtype, external = tensor.dtype, self._external
        if dtype is DType.STRING:
            return Constant.from_array(tensor.to_numpy(external), dtype)
        kind = TensorType(dtype, tensor.shape)
        return Constant(kind, _Decoded(kind.nbytes, lambda: tensor.to_tensor(external).raw_bytes()))


def _dim(dim: DimRecord) -> DeclaredDim:
    return None if dim == "" or (isinstance(dim, int) and dim < 0) else dim


def declared_type(record: TypeRecord | None, what: str) -> DeclaredType | None:
    """Convert a declared type; None where the model declares none. Negative dimensions are unknown.

    Raises:
        Fail: an element type that ONNX does not define; the message starts with `what`.
    """
    match record:
        case None:
            return None
        case TensorTypeRecord(code, shape):
            dims = None if shape is None else tuple(map(_dim, shape))
            return DeclaredTensor(element_type(code, what), dims)
        case SparseTensorTypeRecord(code, shape):
            dims = None if shape is None else tuple(map(_dim, shape))
            return HostKind("sparse_tensor", DeclaredTensor(element_type(code, what), dims))
        case SequenceTypeRecord(element):
            return HostKind("seq", declared_type(element, what))
        case OptionalTypeRecord(element):
            return HostKind("optional", declared_type(element, what))
        case MapTypeRecord(key, value):
            return HostKind("map", declared_type(value, what), element_type(key, what))
        case OpaqueTypeRecord():
            raise Fail(f"{what} has a type that only the domain {record.domain!r} defines: {record.name!r}")


def value_info(record: ValueInfoRecord, name: str, what: str) -> ValueInfo:
    """Return the declaration of a value under the name `name`. Raises as `declared_type` does."""
    return ValueInfo(name, declared_type(record.type, what))

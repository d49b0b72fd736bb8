"""Tensors as a model file stores them: the location of the elements, and their conversion to raw_data.

Elements are in `raw_data`, in the typed field of the element type, or in another file. Elements in raw_data, in packed
`float_data` or `double_data`, or in another file are contiguous and little-endian, and stay in the file; integers in
`int32_data`, `int64_data` and `uint64_data` have variable length and are decoded on demand.
Source: onnx.proto (TensorProto, SparseTensorProto); ONNX External Data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyruntime.errors import Fail, InvalidArgument, NotImplemented
from pyruntime.ir import DType
from pyruntime.onnx.formats.external import ExternalData, locate
from pyruntime.onnx.formats.protobuf import Run
from pyruntime.onnx.formats.source import Buffer, ByteSource, MemorySource, Span

if TYPE_CHECKING:
    from pyruntime.ir import Array

__all__ = ["SparseTensorRecord", "TensorRecord"]

FLOAT_DATA, INT32_DATA, STRING_DATA, INT64_DATA, DOUBLE_DATA, UINT64_DATA = 4, 5, 6, 7, 10, 11
_FIELD_NAMES = {
    FLOAT_DATA: "float_data",
    INT32_DATA: "int32_data",
    STRING_DATA: "string_data",
    INT64_DATA: "int64_data",
    DOUBLE_DATA: "double_data",
    UINT64_DATA: "uint64_data",
}
_TYPED_FIELD = dict.fromkeys(DType, INT32_DATA) | {
    DType.FLOAT: FLOAT_DATA,
    DType.COMPLEX64: FLOAT_DATA,
    DType.DOUBLE: DOUBLE_DATA,
    DType.COMPLEX128: DOUBLE_DATA,
    DType.INT64: INT64_DATA,
    DType.UINT32: UINT64_DATA,
    DType.UINT64: UINT64_DATA,
    DType.STRING: STRING_DATA,
}
_MAX_RANK = 64  # NumPy's
_MAX_NBYTES = 1 << 53  # a JavaScript number is exact up to here
_MAX_DENSE_NBYTES = 1 << 30


def element_type(code: int, what: object) -> DType:
    """Return the element type of a TensorProto code; `what` starts the error message.

    Raises:
        Fail: ONNX defines no such type.
    """
    try:
        return DType.from_code(code)
    except KeyError:
        raise Fail(f"{what} has element type {code}, which ONNX does not define; export the model again") from None


def element_bits(dtype: DType) -> int:
    """Return the bits of an element in memory; for strings, of a reference."""
    return dtype.bits or 64


def checked_shape(dims: tuple[int, ...], dtype: DType, what: object) -> tuple[int, ...]:
    """Return `dims` if NumPy supports an array of that shape, even if another dimension is zero.

    Raises:
        Fail: a negative dimension, more than 64 dimensions, or more than 2^53 bytes.
    """
    if len(dims) > _MAX_RANK:
        raise Fail(f"{what} has {len(dims)} dimensions; at most {_MAX_RANK} are supported")
    if any(d < 0 for d in dims):
        raise Fail(f"{what} has shape {list(dims)}; a stored tensor's dimensions are not negative")
    if math.prod(filter(None, dims)) * element_bits(dtype) > 8 * _MAX_NBYTES:
        raise Fail(f"{what} has shape {list(dims)}, which is more than 2^53 bytes of {dtype.onnx_name}")
    return dims


@dataclass(frozen=True, slots=True)
class TensorRecord:
    """A tensor: element type (a TensorProto code), shape, and the location of its elements.

    `raw` is (offset, length) of raw_data in `source`; `runs` are parts of typed fields; `external` has the entries that
    locate another file, used if `is_external`.
    """

    source: ByteSource
    dims: tuple[int, ...]
    data_type: int
    runs: tuple[Run, ...]
    name: str
    raw: tuple[int, int] | None
    external: tuple[tuple[str, str], ...]
    data_location: int
    segment: bool

    @property
    def is_external(self) -> bool:
        """True if the elements are in another file."""
        return self.data_location == 1

    def __str__(self) -> str:
        """Return the tensor's name in error messages."""
        return f"tensor {self.name!r}"

    @property
    def dtype(self) -> DType:
        """Element type. Raises Fail as `element_type` does."""
        return element_type(self.data_type, self)

    @property
    def shape(self) -> tuple[int, ...]:
        """`dims`, validated. Raises Fail as `checked_shape` does."""
        return checked_shape(self.dims, self.dtype, self)

    @property
    def size(self) -> int:
        """Number of elements. Raises as `shape` does."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size of raw_data in bytes; 0 for strings. Raises as `shape` does."""
        return self.dtype.nbytes(self.size)

    def raw_span(self, external: ExternalData | None = None) -> Span | None:
        """Return the location of the raw_data; None where elements have to be decoded, and for strings.

        Raises:
            Fail: the number of stored elements is wrong, or the external file is not available.
            NotImplemented: a segment of a larger tensor.
        """
        dtype = self.dtype
        nbytes = dtype.nbytes(math.prod(checked_shape(self.dims, dtype, self)))
        if self.segment:
            raise NotImplemented(f"{self} is a segment of a larger tensor; store it in one piece")
        if dtype is DType.STRING:
            if self.is_external or self.raw is not None:
                raise Fail(f"{self} keeps its strings in raw bytes; ONNX has them in string_data alone")
            return None
        if self.is_external:
            span = self._external_span(external, nbytes)
        elif self.raw is not None and self.runs:
            raise Fail(f"{self} has its elements in raw_data and in a typed field too; export the model again")
        elif self.raw is not None:
            span = Span(self.source, *self.raw)
        else:
            field = _TYPED_FIELD[dtype]
            if len(self.runs) > 1 or any(r.field != field or not r.packed for r in self.runs):
                return None
            if field in (INT32_DATA, INT64_DATA, UINT64_DATA) and self.runs:
                return None
            span = Span(self.source, self.runs[0].offset, self.runs[0].length) if self.runs else Span(self.source, 0, 0)
        if span.length != nbytes:
            raise Fail(
                f"{self} is {dtype.onnx_name}{list(self.dims)}, {nbytes} bytes, but {span.length} are stored; "
                "the file is damaged"
            )
        return span

    def raw_bytes(self, external: ExternalData | None = None) -> Buffer:
        """Return the elements as raw_data. Raises as `raw_span` does, and InvalidArgument for strings."""
        if self.dtype is DType.STRING:
            raise InvalidArgument(f"{self} holds strings, which have no raw_data; use to_numpy()")
        span = self.raw_span(external)
        return self._decode() if span is None else span.read()

    def strings(self) -> list[bytes]:
        """Return the elements of a string tensor, undecoded. Raises Fail: the number of stored elements is wrong."""
        from pyruntime.onnx.formats.packed_numbers import split_strings

        self.raw_span()
        self._require_field(STRING_DATA)
        values = split_strings([self.source.read(r.offset, r.length) for r in self.runs])
        if len(values) != self.size:
            raise Fail(f"{self} is string{list(self.dims)}, {self.size} elements, but {len(values)} are stored")
        return values

    def to_numpy(self, external: ExternalData | None = None) -> Array:
        """Return the elements in their NumPy carrier (strings: objects of str), read-only. Raises like `raw_span`."""
        import numpy as np

        from pyruntime.ir.encoding import decode

        if self.dtype is not DType.STRING:
            return decode(self.raw_bytes(external), self.dtype, self.shape)
        values = self.strings()
        array = np.empty(len(values), object)
        try:
            array[:] = [value.decode() for value in values]
        except UnicodeDecodeError as error:
            raise Fail(f"{self} has a string that is not UTF-8: {error}") from error
        return array.reshape(self.shape)

    def _decode(self) -> Buffer:
        from pyruntime.onnx.formats.packed_numbers import decode_runs

        dtype, field = self.dtype, _TYPED_FIELD[self.dtype]
        self._require_field(field)
        raw = decode_runs(
            [(self.source.read(r.offset, r.length), r.packed) for r in self.runs], field, dtype, str(self)
        )
        if len(raw) != self.nbytes:
            raise Fail(
                f"{self} is {dtype.onnx_name}{list(self.dims)}, {self.nbytes} bytes, but {_FIELD_NAMES[field]} "
                f"has {len(raw)}; the file is damaged"
            )
        return raw

    def _require_field(self, field: int) -> None:
        for run in self.runs:
            if run.field != field:
                raise Fail(
                    f"{self} is {self.dtype.onnx_name}, which is stored in {_FIELD_NAMES[field]}, but it has "
                    f"{_FIELD_NAMES[run.field]}; export the model again"
                )

    def _external_span(self, external: ExternalData | None, nbytes: int) -> Span:
        return locate(dict(self.external), nbytes, external, str(self))


@dataclass(frozen=True, slots=True)
class SparseTensorRecord:
    """A sparse tensor: `values` at `indices`, which are [NNZ] linear or [NNZ, rank]; the values have its name."""

    values: TensorRecord | None
    indices: TensorRecord | None
    dims: tuple[int, ...]

    def __str__(self) -> str:
        """Return the tensor's name in error messages."""
        return f"sparse tensor {self.name!r}"

    @property
    def name(self) -> str:
        """Name of the dense tensor that it represents."""
        return self.values.name if self.values else ""

    @property
    def dtype(self) -> DType:
        """Element type of the values. Raises as TensorRecord.dtype does, and Fail where there are none."""
        return self._parts()[0].dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """`dims`, validated. Raises Fail as `checked_shape` does."""
        return checked_shape(self.dims, self.dtype, self)

    def to_numpy(self, external: ExternalData | None = None) -> Array:
        """Return the dense tensor in its NumPy carrier.

        Raises:
            Fail: indices that are not ascending within the shape, parts that do not match, more than 1 GiB.
        """
        import numpy as np

        values, indices = self._parts()
        shape = self.shape
        if math.prod(shape) * element_bits(values.dtype) > 8 * _MAX_DENSE_NBYTES:
            raise Fail(f"{self} of shape {list(shape)} has more than {_MAX_DENSE_NBYTES} bytes when dense")
        count = values.size
        if (
            len(values.shape) != 1
            or indices.dtype is not DType.INT64
            or indices.shape not in ((count,), (count, len(shape)))
        ):
            raise Fail(
                f"{self}: expected values [NNZ] and int64 indices [NNZ] or [NNZ, {len(shape)}], got values "
                f"{list(values.dims)} and {indices.dtype.onnx_name} indices {list(indices.dims)}"
            )
        where = indices.to_numpy(external)
        bounds = np.array(shape if where.ndim == 2 else math.prod(shape), np.int64)
        if bool(((where < 0) | (where >= bounds)).any()):
            raise Fail(f"{self} of shape {list(shape)} has an index outside it")
        if where.ndim == 2:
            strides = np.array([math.prod(shape[axis + 1 :]) for axis in range(len(shape))], np.int64)
            where = (where * strides).sum(axis=1)
        if bool((np.diff(where) <= 0).any()):
            raise Fail(f"{self} has indices that are not in ascending order")
        stored = values.to_numpy(external)
        dense = np.full(shape, "", object) if values.dtype is DType.STRING else np.zeros(shape, stored.dtype)
        dense.reshape(-1)[where] = stored
        return dense

    def to_tensor(self, external: ExternalData | None = None) -> TensorRecord:
        """Return the dense tensor as raw_data in memory. Raises as `to_numpy` does, and NotImplemented for strings."""
        from pyruntime.ir.encoding import encode

        if self.dtype is DType.STRING:
            raise NotImplemented(f"{self} holds strings; store it dense")
        source = MemorySource(encode(self.to_numpy(external), self.dtype))
        return TensorRecord(source, self.dims, self.dtype.code, (), self.name, (0, source.size), (), 0, False)

    def _parts(self) -> tuple[TensorRecord, TensorRecord]:
        if self.values is None or self.indices is None:
            raise Fail(f"{self} lacks its values or its indices")
        return self.values, self.indices

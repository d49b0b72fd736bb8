"""Constants: initializers whose bytes are read from the model when they are needed."""

from __future__ import annotations

from collections.abc import Hashable
from hashlib import blake2b
from typing import TYPE_CHECKING, Protocol

from pyruntime.ir.dtype import DType
from pyruntime.ir.symbolic.dims import is_dim
from pyruntime.ir.symbolic.reals import is_real
from pyruntime.ir.types import TensorType, ValueType

if TYPE_CHECKING:
    from pyruntime.ir.types import Array

__all__ = ["Constant", "RawSource", "are_open", "has_dims"]


class RawSource(Protocol):
    """Bytes that can be read in part: a file's bytes, or a JavaScript ArrayBuffer outside the WebAssembly heap."""

    def read(self, offset: int, length: int) -> bytes | memoryview:
        """`length` bytes from `offset`."""
        ...


_DIGESTED = 1 << 20
"""Bytes up to which constants made here are known by what they hold; larger ones by where they are."""


class _Bytes:
    """A RawSource over bytes in memory."""

    __slots__ = ("data",)

    def __init__(self, data: bytes | memoryview) -> None:
        self.data = memoryview(data)

    def read(self, offset: int, length: int) -> memoryview:
        return self.data[offset : offset + length]


class Constant:
    """A tensor that never changes: type, and `nbytes` of raw_data at `offset` of `source`.

    String tensors carry their array and have no raw_data.
    """

    __slots__ = ("_array", "_key", "offset", "source", "type")

    def __init__(self, type: TensorType, source: RawSource, offset: int = 0) -> None:
        self.type = type
        self.source = source
        self.offset = offset
        self._array: Array | None = None
        self._key: Hashable = None

    @property
    def key(self) -> Hashable:
        """What the bytes are: constants of one key have the same. Their place in a file, or a digest of small ones."""
        if self._key is None:
            small = isinstance(self.source, _Bytes) and self.nbytes <= _DIGESTED
            self._key = (
                (blake2b(self.raw(), digest_size=16).digest(), self.nbytes)
                if small
                else (id(self.source), self.offset, self.nbytes)
            )
        return self._key

    @staticmethod
    def from_array(array: Array, dtype: DType | None = None) -> Constant:
        """A constant holding `array`, encoded as `dtype` (default: the array's own type)."""
        from pyruntime.ir.encoding import encode, round_to

        dtype = dtype or DType.from_numpy(array.dtype)
        shape = array.shape
        if dtype is DType.STRING:
            constant = Constant(TensorType(dtype, shape), _Bytes(b""))
            constant._array = array
            return constant
        constant = Constant(TensorType(dtype, shape), _Bytes(encode(array, dtype).data))
        constant._array = round_to(array, dtype)
        return constant

    @property
    def nbytes(self) -> int:
        """Bytes of raw_data."""
        return self.type.nbytes

    def raw(self) -> bytes | memoryview:
        """The raw_data."""
        return self.source.read(self.offset, self.nbytes)

    def numpy(self) -> Array:
        """The value in its NumPy carrier; decoded once and kept."""
        if self._array is None:
            from pyruntime.ir.encoding import decode

            self._array = decode(self.raw(), self.type.dtype, self.type.shape)
        return self._array

    def __repr__(self) -> str:
        return f"Constant({self.type})"


def has_dims(kind: ValueType | None) -> bool:
    """True for a tensor whose known value has Dims or Reals among its elements.

    A constant's are numbers: it is not read, which may be long, and its bytes may still be on their way.
    """
    if not isinstance(kind, TensorType) or not kind.is_known or kind.dtype is DType.STRING:
        return False
    if isinstance(getattr(kind.source, "__self__", None), Constant):
        return False
    return are_open(kind.value())


def are_open(values: Array) -> bool:
    """True for an array of numbers with Dims or Reals among them. Like one of strings, it is of Python objects."""
    return values.dtype == object and any(is_dim(v) or is_real(v) for v in values.reshape(-1))

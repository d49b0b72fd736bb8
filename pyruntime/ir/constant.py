"""Constants: initializers whose bytes are read from the model on demand."""

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
    """Bytes that can be read in ranges, such as a file, or a JavaScript ArrayBuffer outside the WebAssembly heap."""

    def read(self, offset: int, length: int) -> bytes | memoryview:
        """Return `length` bytes from `offset` on."""
        ...


_DIGESTED = 1 << 20
"""Bytes up to which the key of a constant is a digest of its contents; larger ones are identified by location."""


class _Bytes:
    """A RawSource over bytes in memory."""

    __slots__ = ("data",)

    def __init__(self, data: bytes | memoryview) -> None:
        self.data = memoryview(data)

    def read(self, offset: int, length: int) -> memoryview:
        return self.data[offset : offset + length]


class Constant:
    """A constant tensor: its type, and `nbytes` of raw_data at `offset` of `source`.

    String tensors hold a NumPy array and have no raw_data.
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
        """Identifies the bytes: constants with equal keys have equal bytes. A location, or a digest for small ones in
        memory.
        """
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
        """Create a constant from an array, encoded as `dtype` (default: the array's type)."""
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
        """Size of raw_data in bytes."""
        return self.type.nbytes

    def raw(self) -> bytes | memoryview:
        """Read and return the raw_data."""
        return self.source.read(self.offset, self.nbytes)

    def numpy(self) -> Array:
        """Return the value in its NumPy carrier; decoded once, then cached."""
        if self._array is None:
            from pyruntime.ir.encoding import decode

            self._array = decode(self.raw(), self.type.dtype, self.type.shape)
        return self._array

    def __repr__(self) -> str:
        return f"Constant({self.type})"


def has_dims(kind: ValueType | None) -> bool:
    """Return whether a tensor type's known value has Dims or Reals among its elements.

    Constants never do. They are not read, since that may be slow and their bytes may not have arrived yet.
    """
    if not isinstance(kind, TensorType) or not kind.is_known or kind.dtype is DType.STRING:
        return False
    if isinstance(getattr(kind.source, "__self__", None), Constant):
        return False
    return are_open(kind.value())


def are_open(values: Array) -> bool:
    """Return whether an array holds Dims or Reals. Like arrays of strings, those are arrays of Python objects."""
    return values.dtype == object and any(is_dim(v) or is_real(v) for v in values.reshape(-1))

"""Tensors on the host during a run: as a NumPy array, as raw_data, or both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyruntime.ir.constant import RawSource
from pyruntime.ir.dtype import DType
from pyruntime.ir.types import TensorType

if TYPE_CHECKING:
    from pyruntime.ir.types import Array

__all__ = ["HostTensor"]


class HostTensor:
    """A tensor in host memory, as raw_data or as an array. The other form is computed on demand.

    Attributes:
        type: element type and shape.
        raw: raw_data, if present: bytes, or a RawSource outside Python's memory (a JavaScript buffer).
    """

    __slots__ = ("_array", "raw", "type")

    def __init__(
        self, type: TensorType, raw: bytes | memoryview | RawSource | None = None, array: Array | None = None
    ) -> None:
        self.type = TensorType(type.dtype, type.shape)
        self.raw = raw
        self._array = array

    @staticmethod
    def of(array: Array, dtype: DType) -> HostTensor:
        """Create a tensor of element type `dtype` from an array in its NumPy carrier."""
        return HostTensor(TensorType(dtype, tuple(int(d) for d in array.shape)), None, array)

    @property
    def is_outside(self) -> bool:
        """True while the bytes are outside Python's memory and unread; reading copies them."""
        return self._array is None and not isinstance(self.raw, bytes | memoryview)

    def bytes(self) -> memoryview | RawSource:
        """Return the raw_data. Raises ValueError for strings, which have none."""
        if self.raw is None:
            from pyruntime.ir.encoding import encode

            if self._array is None or self.type.dtype is DType.STRING:
                raise ValueError(f"{self.type} has no raw_data")
            self.raw = encode(self._array, self.type.dtype).data
        return memoryview(self.raw) if isinstance(self.raw, bytes) else self.raw

    def array(self) -> Array:
        """Return the value in its NumPy carrier."""
        if self._array is None:
            from pyruntime.ir.encoding import decode

            assert self.raw is not None
            raw = self.raw if isinstance(self.raw, bytes | memoryview) else self.raw.read(0, self.type.nbytes)
            self._array = decode(raw, self.type.dtype, self.type.shape)
        return self._array

    def known(self, name: str = "") -> TensorType:
        """Return the tensor's type with the value attached, for constant folding."""
        return TensorType(self.type.dtype, self.type.shape, self.array, name)

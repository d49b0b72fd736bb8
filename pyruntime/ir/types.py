"""Types of values: what planning knows about a tensor, sequence, optional or map.

The dimensions of a `TensorType` are ints, or `Dim`s in plans with dynamic dimensions. A type may also have the value,
which is computed on demand, and which for small integer tensors may contain Dims. A container type has only the element
type of its tensors, since the tensors of a sequence differ in shape: `SequenceType(DType.FLOAT)`, `MapType(DType.INT64,
DType.FLOAT)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from pyruntime.ir.dtype import DType
from pyruntime.ir.symbolic.dims import is_dim

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "Array",
    "Element",
    "MapType",
    "OptionalType",
    "SequenceType",
    "TensorType",
    "Unsupported",
    "ValueNeeded",
    "ValueSource",
    "ValueType",
]

Array: TypeAlias = "np.ndarray[Any, Any]"
ValueSource: TypeAlias = Callable[[], Any]


class ValueNeeded(Exception):
    """Raised by `value()` where the value is unknown during planning; has the value's name.

    Not an error: the planner ends the stage, runs it, and plans the rest with the value.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Unsupported(Exception):
    """Raised by `Op.lower` where a node cannot run on the GPU, with the reason; the node becomes a host step."""


class _Valued:
    """Base of types that may have the value."""

    __slots__ = ()
    source: ValueSource | None
    name: str

    @property
    def is_known(self) -> bool:
        """True if the value is known."""
        return self.source is not None

    def value(self) -> Any:
        """Return the value: a list, a dict, or what an optional holds. Raises ValueNeeded if it is unknown."""
        if self.source is None:
            raise ValueNeeded(self.name)
        return self.source()


@dataclass(frozen=True, slots=True)
class TensorType(_Valued):
    """Element type and shape of a tensor, with its value if that is known.

    Equality and hash ignore the value and the name.
    """

    dtype: DType
    shape: tuple[int, ...]
    source: ValueSource | None = field(default=None, compare=False, repr=False)
    name: str = field(default="", compare=False, repr=False)

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size in bytes, as in TensorProto.raw_data."""
        return self.dtype.nbytes(self.size)

    def value(self) -> Array:
        """Return the value as a NumPy array in its carrier dtype.

        Raises:
            ValueNeeded: the value is unknown during planning.
        """
        if self.source is None:
            raise ValueNeeded(self.name)
        array: Array = self.source()
        return array

    def ints(self) -> tuple[int, ...]:
        """Return the value as a flat tuple of ints; Dims stay Dims. Raises ValueNeeded."""
        return tuple(v if is_dim(v) else int(v) for v in self.value().reshape(-1))  # type: ignore[misc]

    def with_shape(self, *shape: int) -> TensorType:
        """Return a type of the same element type with another shape, without the value."""
        return TensorType(self.dtype, shape)

    def __str__(self) -> str:
        return f"{self.dtype.onnx_name}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class SequenceType(_Valued):
    """A list of values of one type, on the host: a Python list of carriers."""

    element: Element
    source: ValueSource | None = field(default=None, compare=False, repr=False)
    name: str = field(default="", compare=False, repr=False)

    def __str__(self) -> str:
        return f"seq({_element_string(self.element)})"


@dataclass(frozen=True, slots=True)
class OptionalType(_Valued):
    """A value or None, on the host."""

    element: Element
    source: ValueSource | None = field(default=None, compare=False, repr=False)
    name: str = field(default="", compare=False, repr=False)

    def __str__(self) -> str:
        return f"optional({_element_string(self.element)})"


@dataclass(frozen=True, slots=True)
class MapType(_Valued):
    """A mapping from integer or string keys to values, on the host: a dict of Python scalars."""

    key: DType
    element: Element
    source: ValueSource | None = field(default=None, compare=False, repr=False)
    name: str = field(default="", compare=False, repr=False)

    def __str__(self) -> str:
        return f"map({self.key.onnx_name},{_element_string(self.element)})"


def _element_string(element: Element) -> str:
    return element.type_string if isinstance(element, DType) else str(element)


Element: TypeAlias = DType | SequenceType | OptionalType | MapType
"""Type of the elements of a container."""

ValueType: TypeAlias = TensorType | SequenceType | OptionalType | MapType

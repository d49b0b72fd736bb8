"""Types of values: what is known of a tensor, sequence, optional or map during planning.

The dimensions of a `TensorType` are ints, or `Dim`s where a plan has dynamic dimensions. It may also know its value,
which for small integer tensors has Dims too and is computed when it is needed. Inside a container only the element type
of a tensor is known, because the tensors of a sequence differ in shape:
`SequenceType(DType.FLOAT)`, `MapType(DType.INT64, DType.FLOAT)`.
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
    """Raised by `value()` when a value is not known while planning; carries the value's name.

    Not an error: the planner ends the stage here, runs it, and goes on with the value at hand.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Unsupported(Exception):
    """Raised by `Op.lower`: this node cannot run on the GPU, for the reason given; it becomes a host step."""


class _Valued:
    """A type that may know the value it is the type of."""

    __slots__ = ()
    source: ValueSource | None
    name: str

    @property
    def is_known(self) -> bool:
        """True where `value()` answers."""
        return self.source is not None

    def value(self) -> Any:
        """The value: a list, a dict, something or None. Raises ValueNeeded."""
        if self.source is None:
            raise ValueNeeded(self.name)
        return self.source()


@dataclass(frozen=True, slots=True)
class TensorType(_Valued):
    """Element type, shape and, where it is known, the value of a tensor.

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
        """Bytes of raw_data."""
        return self.dtype.nbytes(self.size)

    def value(self) -> Array:
        """The value as a NumPy array in its carrier dtype.

        Raises:
            ValueNeeded: it is not known while planning.
        """
        if self.source is None:
            raise ValueNeeded(self.name)
        array: Array = self.source()
        return array

    def ints(self) -> tuple[int, ...]:
        """The value as a flat tuple of Python ints (Dims among them stay Dims). Raises ValueNeeded."""
        return tuple(v if is_dim(v) else int(v) for v in self.value().reshape(-1))  # type: ignore[misc]

    def with_shape(self, *shape: int) -> TensorType:
        """The same element type with another shape; the value is forgotten."""
        return TensorType(self.dtype, shape)

    def __str__(self) -> str:
        return f"{self.dtype.onnx_name}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class SequenceType(_Valued):
    """A list of values of one kind; lives on the host as a Python list of carriers."""

    element: Element
    source: ValueSource | None = field(default=None, compare=False, repr=False)
    name: str = field(default="", compare=False, repr=False)

    def __str__(self) -> str:
        return f"seq({_element_string(self.element)})"


@dataclass(frozen=True, slots=True)
class OptionalType(_Valued):
    """A value or nothing (None); lives on the host."""

    element: Element
    source: ValueSource | None = field(default=None, compare=False, repr=False)
    name: str = field(default="", compare=False, repr=False)

    def __str__(self) -> str:
        return f"optional({_element_string(self.element)})"


@dataclass(frozen=True, slots=True)
class MapType(_Valued):
    """A mapping from integer or string keys to values; lives on the host as a dict of Python scalars."""

    key: DType
    element: Element
    source: ValueSource | None = field(default=None, compare=False, repr=False)
    name: str = field(default="", compare=False, repr=False)

    def __str__(self) -> str:
        return f"map({self.key.onnx_name},{_element_string(self.element)})"


def _element_string(element: Element) -> str:
    return element.type_string if isinstance(element, DType) else str(element)


Element: TypeAlias = DType | SequenceType | OptionalType | MapType
"""What a container holds."""

ValueType: TypeAlias = TensorType | SequenceType | OptionalType | MapType

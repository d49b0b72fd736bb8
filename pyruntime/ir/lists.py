"""Compact lists for operator attributes with up to millions of elements: arrays instead of one Python object an
element.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from pyruntime.ir.types import Array

__all__ = ["Floats", "Ints", "NumberList", "Strings"]

T = TypeVar("T")


class NumberList(Sequence[T], Generic[T]):
    """Numbers in one array. Equality and hash are those of the bytes: 0.0 and -0.0 differ, NaN equals itself.

    Attributes:
        array: the elements; one-dimensional and read-only.
    """

    _dtypes: tuple[str, ...] = ()

    def __init__(self, values: Any) -> None:
        import numpy as np

        array = np.asarray(values)
        if array.dtype.str[1:] not in self._dtypes or array.ndim != 1:
            array = np.array(values, self._dtypes[0]).reshape(-1)
        self.array: Array = array.view()
        self.array.flags.writeable = False

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, index: Any) -> Any:
        found = self.array[index]
        return type(self)(found) if isinstance(index, slice) else found.item()

    def __iter__(self) -> Iterator[T]:
        return iter(self.array.tolist())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        import numpy as np

        return np.array(self.array, dtype) if copy else np.asarray(self.array, dtype)

    @cached_property
    def _hash(self) -> int:
        return hash((type(self), self.array.dtype.str, self.array.tobytes()))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)) or self.array.dtype != other.array.dtype or len(self) != len(other):
            return False
        return self is other or (hash(self) == hash(other) and self.array.tobytes() == other.array.tobytes())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)})"


class Ints(NumberList[int]):
    """Integers: int64, or int32 where all values fit."""

    _dtypes = ("i8", "i4")


class Floats(NumberList[float]):
    """float32 numbers."""

    _dtypes = ("f4",)


class Strings(Sequence[T], Generic[T]):
    """Strings (str, or bytes as stored in a file) with many duplicates.

    Attributes:
        distinct: the distinct strings. codes: for each element, its index in `distinct`.
    """

    def __init__(self, distinct: Sequence[T], codes: Any) -> None:
        self.distinct = tuple(distinct)
        self.codes = Ints(codes)

    @staticmethod
    def of(texts: Sequence[T]) -> Strings[T]:
        """Deduplicate `texts`; a `Strings` is returned unchanged."""
        if isinstance(texts, Strings):
            return texts
        places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        return Strings(tuple(places), [places[text] for text in texts])

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(self)[index]
        return self.distinct[self.codes[index]]

    def __iter__(self) -> Iterator[T]:
        return iter([self.distinct[code] for code in self.codes])

    def __hash__(self) -> int:
        return hash((self.distinct, self.codes))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Strings) and self.distinct == other.distinct and self.codes == other.codes

    def __repr__(self) -> str:
        return f"Strings({len(self)})"

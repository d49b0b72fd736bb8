"""Bind the inputs of a node: to operands of dispatches, to types, and to the names that its operator declares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Operand, inp

__all__ = ["bound", "index_of", "optional", "types_of"]

Names = TypeVar("Names")


def optional(index: int, kind: TensorType | None) -> Operand | None:
    """Input `index` as an operand; None where it is absent."""
    return None if kind is None else inp(index, kind)


def bound(names: Callable[..., Names], kinds: Sequence[TensorType | None]) -> Names:
    """The inputs as operands by the names of `names`, the NamedTuple of an operator; None for absent ones."""
    return names(*(optional(i, kind) for i, kind in enumerate(kinds)))


def types_of(arrays: Sequence[Array | None]) -> tuple[TensorType | None, ...]:
    """The types of arrays in carrier types; None for absent ones."""
    return tuple(None if x is None else TensorType(DType.from_numpy(x.dtype), x.shape) for x in arrays)


def index_of(names: Any, name: str) -> int:
    """The index of the input that the NamedTuple `names` calls `name`."""
    return int(names._fields.index(name))

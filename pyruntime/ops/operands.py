"""Declare the inputs of an operator by name, and bind those of a node: to operands of dispatches, and to types."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Operand, inp

__all__ = ["bound", "index_of", "named", "optional", "types_of"]

Names = TypeVar("Names")


def named(required: str, optional: str = "") -> Any:
    """A named tuple for `Op.operands`, whose values are types, arrays or operands, or None for an absent input.

    Args:
        required: the names of the inputs, with spaces between them. A `?` after a name says that its place is always
            there, and may be empty.
        optional: the names of the inputs after these, which may be left out.
    """
    declared = {name.rstrip("?"): "Any | None" if name.endswith("?") else "Any" for name in required.split()}
    declared |= dict.fromkeys(optional.split(), "Any | None")
    made: Any = namedtuple("Operands", declared, defaults=(None,) * len(optional.split()))  # type: ignore[misc]
    made.__annotations__ = declared
    return made


def optional(index: int, kind: TensorType | None) -> Operand | None:
    """Input `index` as an operand; None where it is absent."""
    return None if kind is None else inp(index, kind)


def bound(names: Callable[..., Names], kinds: Sequence[TensorType | None]) -> Names:
    """The inputs as operands, in the named tuple of an operator; None for absent ones."""
    return names(*(optional(i, kind) for i, kind in enumerate(kinds)))


def types_of(arrays: Sequence[Array | None]) -> tuple[TensorType | None, ...]:
    """The types of arrays in carrier types; None for absent ones."""
    return tuple(None if x is None else TensorType(DType.from_numpy(x.dtype), x.shape) for x in arrays)


def index_of(names: Any, name: str) -> int:
    """The index of the input that a named tuple calls `name`."""
    return int(names._fields.index(name))

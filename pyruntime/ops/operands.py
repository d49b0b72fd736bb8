"""Declare the inputs of an operator by name, and bind a node's inputs to these names as operands, types or arrays."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Operand, inp

__all__ = ["bound", "index_of", "named", "optional", "reshaped", "types_of"]

Names = TypeVar("Names")


def named(required: str, optional: str = "") -> Any:
    """Make a named tuple class for `Op.operands`. Its values are types, arrays or operands; None for an absent input.

    Args:
        required: space-separated input names. A name that ends in `?` may be None but must be passed.
        optional: space-separated names of trailing inputs that may be omitted.
    """
    declared = {name.rstrip("?"): "Any | None" if name.endswith("?") else "Any" for name in required.split()}
    declared |= dict.fromkeys(optional.split(), "Any | None")
    made: Any = namedtuple("Operands", declared, defaults=(None,) * len(optional.split()))  # type: ignore[misc]
    made.__annotations__ = declared
    return made


def optional(index: int, kind: TensorType | None) -> Operand | None:
    """Return input `index` as an operand, or None if it is absent."""
    return None if kind is None else inp(index, kind)


def bound(names: Callable[..., Names], kinds: Sequence[TensorType | None]) -> Names:
    """Return the inputs as operands in the operator's named tuple; None for absent ones."""
    return names(*(optional(i, kind) for i, kind in enumerate(kinds)))


def reshaped(operand: Operand, *shape: int) -> Operand:
    """Return the operand with another shape of the same size."""
    return replace(operand, type=operand.type.with_shape(*shape))


def types_of(arrays: Sequence[Array | None]) -> tuple[TensorType | None, ...]:
    """Return the tensor types of arrays in carrier dtypes; None for absent ones."""
    return tuple(None if x is None else TensorType(DType.from_numpy(x.dtype), x.shape) for x in arrays)


def index_of(names: Any, name: str) -> int:
    """Return the index of input `name` in a named tuple class."""
    return int(names._fields.index(name))

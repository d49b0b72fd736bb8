"""What is stated about the inputs of a model that is compiled ahead of time: shapes, and values its plans are for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pyruntime.compiler.refusals import KNOWN_LIMIT
from pyruntime.errors import EPFail, InvalidArgument
from pyruntime.ir import Array, DeclaredTensor, DType, HostTensor, TensorType, ValueInfo
from pyruntime.ir.encoding import round_to

__all__ = ["stated_type", "stated_value"]


def stated_type(value: ValueInfo, given: Sequence[tuple[int, ...]], number: int) -> TensorType:
    """Return the type of an input in the runs that set number `number` of shapes stands for.

    Args:
        given: its shapes, the last of which stands for those that lack; none: the declared one, symbols being 1.

    Raises:
        EPFail: the input is no tensor. InvalidArgument: a shape that the declared one does not take.
    """
    kind = value.type
    if not isinstance(kind, DeclaredTensor):
        raise EPFail(f"input '{value.name}' is no tensor, which plans need; create the session without a plan")
    declared = kind.shape
    if given:
        shape = given[min(number, len(given) - 1)]
        if not _fits(kind, shape):
            raise InvalidArgument(f"--shape: input '{value.name}' is {_stated(kind)}, not of shape {list(shape)}")
        return TensorType(kind.dtype, shape)
    if declared is None:
        raise InvalidArgument(f"input '{value.name}' has no declared shape; give --shape {value.name}=...")
    return TensorType(kind.dtype, tuple(d if isinstance(d, int) else 1 for d in declared))


def stated_value(value: ValueInfo, given: Any, shape: tuple[int, ...] | None) -> HostTensor:
    """Convert a number or nested lists of numbers to a value of the input's type.

    Args:
        shape: what --shape says of the input; None: nothing.

    Raises:
        EPFail: the input is no tensor. InvalidArgument: not of its type or shape, or too large to be planned for.
    """
    kind, name = value.type, value.name
    if not isinstance(kind, DeclaredTensor) or kind.dtype is DType.STRING:
        raise EPFail(f"input '{name}' is {kind}, which plans cannot take; create the session without a plan")
    try:
        array = np.asarray(given)
    except ValueError:
        raise InvalidArgument(f"--value: input '{name}': expected lists of equal lengths, got {given!r}") from None
    array = _cast(array, kind.dtype, name)
    wanted = shape if shape is not None else kind.shape
    if array.size == 1 and wanted is not None and all(d == 1 or isinstance(d, str) or d is None for d in wanted):
        array = array.reshape((1,) * len(wanted))
    if not _fits(kind, array.shape) or (shape is not None and shape != array.shape):
        raise InvalidArgument(f"--value: input '{name}' is {_stated(kind)}, not of shape {list(array.shape)}")
    if array.size > KNOWN_LIMIT:
        raise InvalidArgument(
            f"--value: input '{name}' has {array.size:,} elements; plans are for values of at most {KNOWN_LIMIT:,}"
        )
    return HostTensor.of(array, kind.dtype)


def _stated(kind: DeclaredTensor) -> str:
    """Return the type of an input and its declared shape as text."""
    return f"{kind} of any shape" if kind.shape is None else f"{kind} of shape [{', '.join(map(str, kind.shape))}]"


def _fits(kind: DeclaredTensor, shape: tuple[int, ...]) -> bool:
    declared = kind.shape
    if declared == ():
        return math.prod(shape) == 1
    return declared is None or (
        len(declared) == len(shape)
        and all(not isinstance(d, int) or d == s for d, s in zip(declared, shape, strict=True))
    )


def _cast(array: Array, dtype: DType, name: str) -> Array:
    """The numbers in the carrier of `dtype`. Raises InvalidArgument where it does not have them."""
    kinds = "b" if dtype is DType.BOOL else "iu" if dtype.is_integer else "iuf"
    if array.dtype.kind not in kinds and array.size:
        expected = {"b": "true or false", "iu": "integers", "iuf": "numbers"}[kinds]
        raise InvalidArgument(
            f"--value: input '{name}' is {dtype.type_string}; expected {expected}, got {array.tolist()}"
        )
    if dtype.is_integer and array.size:
        low, high = dtype.limits
        if int(array.min()) < low or int(array.max()) > high:
            raise InvalidArgument(
                f"--value: input '{name}' is {dtype.type_string}, from {low} to {high}; got {array.tolist()}"
            )
    return round_to(array.astype(dtype.numpy), dtype)

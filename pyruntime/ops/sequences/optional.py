"""Optionals: a tensor, a sequence, or nothing. Source: ONNX operators Optional, OptionalGetElement and HasElement."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime import errors
from pyruntime.ir import (
    Array,
    DeclaredType,
    DType,
    OptionalType,
    TensorType,
    ValueType,
    declared_element,
    element_of,
    of_element,
)
from pyruntime.ops.base import LATEST, Op, op


@op("Optional", opsets=range(15, LATEST + 1))
class Optional(Op):
    """Wraps the input in an optional; without input, an empty optional of `type`."""

    type: DeclaredType | None = None

    def infer(self, x: ValueType | None = None) -> tuple[ValueType, ...]:
        element = declared_element(self.type) if x is None else element_of(x)
        if element is None:
            self.fail("an input or the attribute `type`", "neither")
        return (OptionalType(element),)

    def evaluate(self, x: Any = None) -> tuple[Any, ...]:
        return (x,)


@op("OptionalHasElement", opsets=range(15, LATEST + 1))
class OptionalHasElement(Op):
    """Bool scalar: whether there is a value. Tensors and sequences always have one, an absent input has none."""

    def infer(self, x: ValueType | None = None) -> tuple[ValueType, ...]:
        if self.follows_from_types(x):
            return (of_element(DType.BOOL, np.array(x is not None)),)
        return (TensorType(DType.BOOL, ()),)

    def follows_from_types(self, x: ValueType | None = None) -> bool:
        return not isinstance(x, OptionalType)

    def evaluate(self, x: Any = None) -> tuple[Array, ...]:
        return (np.array(x is not None),)


@op("OptionalGetElement", opsets=range(15, LATEST + 1))
class OptionalGetElement(Op):
    """Returns the value of an optional; tensors and sequences pass through.

    Raises:
        RuntimeException: the optional is empty.
    """

    def infer(self, x: ValueType) -> tuple[ValueType, ...]:
        if not isinstance(x, OptionalType):
            return (x,)
        value = x.value()
        if value is None:
            raise errors.RuntimeException(f"{self.op_type}: expected a value, got an empty {x}")
        return (of_element(x.element, value),)

    def evaluate(self, x: Any) -> tuple[Any, ...]:
        return (x,)

    def alias(self, x: ValueType) -> int | None:
        return 0 if isinstance(x, TensorType) else None

"""Shape and Size: dimensions and number of elements, which follow from the input type. Source: ONNX operators."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, DType, TensorType, ValueType, int_array, of_element
from pyruntime.ops.base import LATEST, Op, op


def _int64(value: Array) -> tuple[ValueType, ...]:
    return (of_element(DType.INT64, value),)


class _OfTypes(Op):
    """Base of operators whose output depends on the input types only."""

    def follows_from_types(self, *inputs: ValueType | None) -> bool:
        return True


@op("Shape", opsets=range(15, LATEST + 1), earlier={range(1, 15): "start end"})
class Shape(_OfTypes):
    """x.shape[start:end] as int64, with the slice rules of Python."""

    start: int = 0
    end: int | None = None

    def infer(self, x: TensorType) -> tuple[ValueType, ...]:
        return _int64(int_array(x.shape[self.start : self.end]))

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (np.array(x.shape[self.start : self.end], np.int64),)


@op("Size", opsets=range(1, LATEST + 1))
class Size(_OfTypes):
    """The number of elements as an int64 scalar."""

    def infer(self, x: TensorType) -> tuple[ValueType, ...]:
        return _int64(int_array(x.size))

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (np.array(x.size, np.int64),)

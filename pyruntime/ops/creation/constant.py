"""Constant: a tensor given as an attribute. Source: ONNX operator Constant."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pyruntime import ir
from pyruntime.ir import Array, DType, TensorType, ValueType, known
from pyruntime.ops.base import LATEST, Op, op

NUMBERS = {"float": DType.FLOAT, "int": DType.INT64, "string": DType.STRING}


class _Constant(Op):
    """Base of all Constant versions: the value of the single attribute that is given."""

    def tensor(self) -> tuple[TensorType, Array | ir.Constant]:
        """Return the type and the value. Raises InvalidGraph unless exactly one attribute is given."""
        given: list[tuple[TensorType, Array | ir.Constant]] = []
        for name in ("value", "sparse_value"):
            constant = getattr(self, name, None)
            if constant is not None:
                given.append((constant.type, constant))
        for kind, dtype in NUMBERS.items():
            for name in (f"value_{kind}", f"value_{kind}s"):
                number = getattr(self, name, None)
                if number is not None:
                    array = np.array(number, dtype.numpy)
                    given.append((TensorType(dtype, tuple(array.shape)), array))
        if len(given) != 1:
            self.fail("one attribute with a value", len(given))
        return given[0]

    def infer(self) -> tuple[ValueType, ...]:
        type, value = self.tensor()
        return (replace(type, source=value.numpy) if isinstance(value, ir.Constant) else known(type, value),)

    def evaluate(self) -> tuple[Array, ...]:
        value = self.tensor()[1]
        return (value.numpy() if isinstance(value, ir.Constant) else value,)


@op(
    "Constant",
    opsets=range(12, LATEST + 1),
    earlier={
        range(11, 12): "value_float value_floats value_int value_ints value_string value_strings",
    },
)
class Constant(_Constant):
    """A tensor, a sparse tensor (converted to dense), or float32, int64 or string data, scalar or 1-D."""

    value: ir.Constant | None = None
    sparse_value: ir.Constant | None = None
    value_float: float | None = None
    value_floats: ir.Floats | None = None
    value_int: int | None = None
    value_ints: ir.Ints | None = None
    value_string: str | None = None
    value_strings: tuple[str, ...] | None = None


@op("Constant", opsets=range(1, 11))
class ConstantTensor(_Constant):
    """Constant before opset 11: a tensor."""

    value: ir.Constant

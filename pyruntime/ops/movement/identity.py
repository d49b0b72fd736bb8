"""Identity and BitCast: operators that do not change bytes. Source: ONNX operators of these names."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, DType, TensorType, ValueType
from pyruntime.ir.encoding import decode, encode
from pyruntime.ops.base import LATEST, Op, op


@op("Identity", opsets=range(1, LATEST + 1))
class Identity(Op):
    """y = x: a tensor, sequence or optional."""

    def infer(self, x: ValueType) -> tuple[ValueType, ...]:
        return (TensorType(x.dtype, x.shape) if isinstance(x, TensorType) else x,)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (x,)

    def alias(self, x: ValueType) -> int | None:
        return 0 if isinstance(x, TensorType) else None


@op("BitCast", opsets=range(26, LATEST + 1))
class BitCast(Op):
    """Reinterprets the bits of x as a type of the same width; all types except string."""

    to: int

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        try:
            dtype = DType.from_code(self.to)
        except KeyError:
            self.fail("'to' to be the code of an ONNX type", self.to)
        if DType.STRING in (dtype, x.dtype) or dtype.bits != x.dtype.bits:
            self.fail(f"two types of one width, x being {x.dtype.type_string}", dtype.type_string)
        return (TensorType(dtype, x.shape),)

    def evaluate_typed(self, types: tuple[ValueType | None, ...], x: Array) -> tuple[Array, ...]:
        kind = types[0]
        assert isinstance(kind, TensorType)
        return (np.asarray(decode(encode(x, kind.dtype), DType.from_code(self.to), kind.shape)),)

    def alias(self, x: TensorType) -> int | None:
        return 0

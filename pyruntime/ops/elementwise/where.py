"""Where: y = a where condition, else b; any dtype. Source: ONNX operator Where."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Operand, Target, bits_type, elementwise, inp, out
from pyruntime.ops.base import LATEST, Unsupported, op
from pyruntime.ops.elementwise.elementwise import BOOL, Elementwise, Expression


@op("Where", opsets=range(9, LATEST + 1))
class Where(Elementwise):
    """y = condition ? a : b, with broadcasting. Elements are copied bit by bit."""

    names = ("condition", "a", "b")

    def infer(self, condition: TensorType, a: TensorType, b: TensorType) -> tuple[TensorType, ...]:
        self.check(condition, BOOL)
        return (TensorType(self.same_dtype(a, b), self.broadcast(condition, a, b)),)

    def evaluate(self, condition: Array, a: Array, b: Array) -> tuple[Array, ...]:
        return (np.where(condition, a, b),)

    def expression(self, *dtypes: DType | None) -> Expression | None:
        return Expression("select(b, a, condition)", self.names) if dtypes[1] and dtypes[1].compute else None

    def lower(self, target: Target, condition: TensorType, a: TensorType, b: TensorType) -> tuple[Dispatch, ...]:
        expression = self.expression(condition.dtype, a.dtype, b.dtype)
        if expression is None:
            raise Unsupported(f"{a.dtype.onnx_name} tensors live on the host")

        def bits(x: TensorType) -> TensorType:
            return TensorType(bits_type(x.dtype), x.shape)

        (y,) = self.infer(condition, a, b)
        operands: dict[str, Operand] = {"condition": inp(0, condition), "a": inp(1, bits(a)), "b": inp(2, bits(b))}
        return (elementwise(target, "where", operands, out(0, bits(y)), expression.code),)

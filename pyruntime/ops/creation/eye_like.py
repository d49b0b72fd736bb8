"""EyeLike: a matrix of zeros with ones on a diagonal, in the shape of the input. Source: ONNX operator EyeLike."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.ir.encoding import encode
from pyruntime.kernels import Dispatch, Target, Unit, move, out
from pyruntime.ops.base import LATEST, Op, op


@op("EyeLike", opsets=range(9, LATEST + 1))
class EyeLike(Op):
    """x: [N, M]; y[i, i + k] = 1. `dtype` is a TensorProto code, default x's type."""

    dtype: int | None = None
    k: int = 0

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        if x.rank != 2:
            self.fail("a matrix", x)
        try:
            return (TensorType(x.dtype if self.dtype is None else DType.from_code(self.dtype), x.shape),)
        except KeyError:
            self.fail("dtype to be a tensor element type", self.dtype)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        dtype = x.dtype if self.dtype is None else DType.from_code(self.dtype).numpy
        rows, columns = x.shape
        return (np.eye(rows, columns, max(-rows, min(self.k, columns)), dtype=dtype),)

    def lower(self, target: Target, x: TensorType) -> tuple[Dispatch, ...]:
        (y,) = self.infer(x)
        dtype = y.dtype
        one = int.from_bytes(encode(np.ones(1, dtype.numpy), dtype).tobytes()[: max(1, dtype.bits // 8)], "little")
        value = "vec2<u32>(params.one_lo, params.one_hi)" if dtype.bits == 64 else "params.one_lo"
        zero = "vec2<u32>()" if dtype.bits == 64 else "0u"
        element = f"""let row = i / params.columns;
  return select({zero}, {value}, i32(i - row * params.columns) - i32(row) == params.k);"""
        k = max(-(1 << 30), min(self.k, 1 << 30))
        values = {"columns": x.shape[1], "k": k, "one_lo": one, "one_hi": one >> 32}
        unit, kinds = Unit(1, dtype.bits), {"k": "i32"}
        return (move(target, "eye_like", unit, out(0, y), {}, element, values, kinds=kinds),)

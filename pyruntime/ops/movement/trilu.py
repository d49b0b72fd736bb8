"""Trilu: set a matrix to zero on one side of a diagonal. Source: ONNX operator Trilu."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Target, Unit, inp, move, out
from pyruntime.ops.base import LATEST, Op, op


@op("Trilu", opsets=range(14, LATEST + 1))
class Trilu(Op):
    """x: [..., N, M]; k: one int64, default 0. y[i, j] = x[i, j] where j - i >= k (`upper`) or <= k, else 0."""

    upper: int = 1

    def infer(self, x: TensorType, k: TensorType | None = None) -> tuple[TensorType, ...]:
        if x.rank < 2:
            self.fail("an input of rank 2 or more", x)
        if k is not None and (k.size != 1 or k.dtype is not DType.INT64):
            self.fail("k to be one int64", k)
        return (TensorType(x.dtype, x.shape),)

    def evaluate(self, x: Array, k: Array | None = None) -> tuple[Array, ...]:
        diagonal = np.arange(x.shape[-1]) - np.arange(x.shape[-2])[:, None]
        at = 0 if k is None else int(k.reshape(()))
        return (np.where(diagonal >= at if self.upper else diagonal <= at, x, np.zeros((), x.dtype)),)

    def lower(self, target: Target, x: TensorType, k: TensorType | None = None) -> tuple[Dispatch, ...]:
        at = "0" if k is None else "i64_saturate(load_k(0u))"
        zero = "vec2<u32>()" if x.dtype.bits == 64 else "0u"
        element = f"""let row = i / params.columns;
  let diagonal = i32(i - row * params.columns) - i32(row % params.rows);
  if (diagonal {">=" if self.upper else "<="} {at}) {{ return load_x(i); }}
  return {zero};"""
        values = {"rows": x.shape[-2], "columns": x.shape[-1]}
        name = f"{'triu' if self.upper else 'tril'}{'' if k is None else '_k'}"
        others = {} if k is None else {"k": inp(1, k)}
        unit, y = Unit(1, x.dtype.bits), TensorType(x.dtype, x.shape)
        return (move(target, name, unit, out(0, y), {"x": inp(0, x)}, element, values, others),)

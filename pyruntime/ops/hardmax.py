"""Hardmax: 1 at the first greatest element along an axis, 0 elsewhere. Source: ONNX operator Hardmax."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Operand, Source, Target, gather_map, inp, out, scratch
from pyruntime.kernels.reduce import reduction
from pyruntime.kernels.rows import Rows, rows_of
from pyruntime.ops.arg_reduce import arg_fold
from pyruntime.ops.base import LATEST, Op, Unsupported, op

_ELEMENT = """
  let k = (i / params.inner) % params.length;
  let row = i / (params.inner * params.length) * params.inner + i % params.inner;
  return select(0.0, 1.0, load_best(row) == k);
"""


@dataclass(frozen=True, kw_only=True)
class _Hardmax(Op):
    """From opset 13 along one axis, before over all dimensions from `axis` on."""

    axis: int = -1

    def rows(self, shape: tuple[int, ...]) -> Rows:
        """The rows that each get a single 1."""
        return rows_of(shape, self.axis_of(self.axis, len(shape)), flatten=self.opsets.stop <= 13)

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        self.rows(x.shape)
        return (TensorType(x.dtype, x.shape),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        if not x.size:
            return (x,)
        rows = self.rows(x.shape)
        view = x.reshape(rows.outer, rows.length, rows.inner)
        best = np.argmax(view, axis=1)[:, None, :]
        return ((np.arange(rows.length)[:, None] == best).astype(x.dtype).reshape(x.shape),)

    def lower(self, target: Target, x: TensorType) -> tuple[Dispatch, ...]:
        if x.dtype is DType.DOUBLE:
            raise Unsupported("float64 is exact on the host")
        rows = self.rows(x.shape)
        fold = replace(arg_fold(x.dtype, True, False), name="hardmax", finish="a.index")
        view = inp(0, x)
        view = Operand(view.role, view.index, x.with_shape(rows.outer, rows.length, rows.inner))
        best = scratch(DType.UINT32, rows.outer, rows.inner)
        fields = (("length", "u32"), ("inner", "u32"))
        values = {"length": rows.length, "inner": max(1, rows.inner)}
        marked = gather_map(target, "hardmax_mark", out(0, x), [Source("best", best)], _ELEMENT, fields, values)
        return (*reduction(target, fold, best, view, (1,)), marked)


@op("Hardmax", opsets=range(13, LATEST + 1))
class Hardmax(_Hardmax):
    """Along one axis."""


@op("Hardmax", opsets=range(1, 13))
class HardmaxFlattened(_Hardmax):
    """Over all dimensions from `axis` on, taken as one."""

    axis: int = 1

"""Softmax and LogSoftmax: y = exp(x - max) / sum(exp(x - max)), and its logarithm. Source: ONNX operators.

A row with NaN or +inf, or of -inf alone, is NaN throughout, as the formula has it. Without an element there is nothing
to write.
"""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Target, inp, out
from pyruntime.kernels.rows.rows import Rows, rows_of, softmax_rows
from pyruntime.ops.base import LATEST, Op, attributes, op, refuse_float64

__all__ = ["softmax"]


def softmax(x: Array, axis: int, log: bool = False) -> Array:
    """Softmax or its logarithm along `axis`, in x's type (16-bit floats through float32)."""
    if not x.size:
        return x
    wide = x.astype(np.float32) if x.dtype == np.float16 else x
    with np.errstate(all="ignore"):
        shifted = wide - wide.max(axis=axis, keepdims=True)
        exponentials = np.exp(shifted)
        total = exponentials.sum(axis=axis, keepdims=True)
        y = shifted - np.log(total) if log else exponentials / total
    return np.asarray(y).astype(x.dtype, copy=False)


@attributes
class _Softmax(Op):
    """Shared by both operators and both shape rules: from opset 13 along one axis, before over all from `axis` on."""

    axis: int = -1

    @property
    def log(self) -> bool:
        return self.op_type == "LogSoftmax"

    def rows(self, shape: tuple[int, ...]) -> Rows:
        """The rows that are normalised."""
        return rows_of(shape, self.axis_of(self.axis, len(shape)), flatten=self.opsets.stop <= 13)

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        self.rows(x.shape)
        return (TensorType(x.dtype, x.shape),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        rows = self.rows(x.shape)
        view = x.reshape(rows.outer, rows.length, rows.inner)
        return (softmax(view, 1, self.log).reshape(x.shape),)

    def lower(self, target: Target, x: TensorType) -> tuple[Dispatch, ...]:
        refuse_float64(x)
        return (softmax_rows(target, out(0, x), inp(0, x), self.rows(x.shape), self.log),)


@op("Softmax", opsets=range(13, LATEST + 1))
class Softmax(_Softmax):
    """Along one axis."""


@op("LogSoftmax", opsets=range(13, LATEST + 1))
class LogSoftmax(_Softmax):
    """Along one axis."""


@op("Softmax", opsets=range(1, 13))
class SoftmaxFlattened(_Softmax):
    """Over all dimensions from `axis` on, taken as one."""

    axis: int = 1


@op("LogSoftmax", opsets=range(1, 13))
class LogSoftmaxFlattened(_Softmax):
    """Over all dimensions from `axis` on, taken as one."""

    axis: int = 1

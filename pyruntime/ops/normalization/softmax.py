"""Softmax and LogSoftmax: y = exp(x - max) / sum(exp(x - max)), and its logarithm. Source: ONNX operators.

By this formula, rows with NaN or +inf, and rows of -inf, are NaN.
"""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Target, inp, out
from pyruntime.kernels.rows.rows import Rows, rows_of, softmax_rows
from pyruntime.ops.base import LATEST, Op, attributes, op, refuse_float64

__all__ = ["softmax"]


def softmax(x: Array, axis: int, log: bool = False) -> Array:
    """Return softmax or its logarithm along `axis`, in x's type (16-bit floats are computed in float32)."""
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
    """Base of Softmax and LogSoftmax: along one axis from opset 13 on, before over all dimensions from `axis` on."""

    axis: int = -1

    @property
    def log(self) -> bool:
        return self.op_type == "LogSoftmax"

    def rows(self, shape: tuple[int, ...]) -> Rows:
        """Return the rows to normalize."""
        return rows_of(shape, self.axis_of(self.axis, len(shape)), flatten=self.opsets.stop <= 13)

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        self.rows(x.shape)
        return (TensorType(self.floating(x), x.shape),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        rows = self.rows(x.shape)
        view = x.reshape(rows.outer, rows.length, rows.inner)
        return (softmax(view, 1, self.log).reshape(x.shape),)

    def lower(self, target: Target, x: TensorType) -> tuple[Dispatch, ...]:
        refuse_float64(x)
        return (softmax_rows(target, out(0, x), inp(0, x), self.rows(x.shape), self.log),)


@op("Softmax", opsets=range(13, LATEST + 1))
class Softmax(_Softmax):
    """Softmax along one axis."""


@op("LogSoftmax", opsets=range(13, LATEST + 1))
class LogSoftmax(_Softmax):
    """Logarithm of softmax along one axis."""


@op("Softmax", opsets=range(1, 13))
class SoftmaxFlattened(_Softmax):
    """Softmax over all dimensions from `axis` on, flattened."""

    axis: int = 1


@op("LogSoftmax", opsets=range(1, 13))
class LogSoftmaxFlattened(_Softmax):
    """Logarithm of softmax over all dimensions from `axis` on, flattened."""

    axis: int = 1

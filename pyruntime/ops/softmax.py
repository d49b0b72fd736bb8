"""Softmax and LogSoftmax: y = exp(x - max) / sum(exp(x - max)), and its logarithm. Source: ONNX operators."""

from __future__ import annotations

import math

import numpy as np

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Target, inp, out, params_of, template
from pyruntime.ops.base import LATEST, Op, op

WORKGROUP = 64


class _Softmax(Op):
    """Shared by both; `log` says which, `flatten` the shape rule of opsets before 13."""

    log = False
    flatten = False

    def _extent(self, shape: tuple[int, ...]) -> tuple[int, int, int]:
        """(outer, length, inner): softmax runs over `length` elements `inner` apart."""
        axis = self.axis_of(self.axis, len(shape))  # type: ignore[attr-defined]
        if self.flatten:
            return math.prod(shape[:axis]), math.prod(shape[axis:]), 1
        return math.prod(shape[:axis]), shape[axis] if shape else 1, math.prod(shape[axis + 1 :])

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        self._extent(x.shape)
        return (TensorType(x.dtype, x.shape),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        rows = x.reshape(self._extent(x.shape))
        if not rows.size:
            return (x,)
        shifted = rows - rows.max(axis=1, keepdims=True)
        total = np.exp(shifted).sum(axis=1, keepdims=True)
        y = shifted - np.log(total) if self.log else np.exp(shifted) / total
        return (y.astype(x.dtype).reshape(x.shape),)

    def lower(self, target: Target, x: TensorType) -> tuple[Dispatch, ...]:
        outer, length, inner = self._extent(x.shape)
        kernel = template("softmax_rows", x.dtype, LOG=int(self.log))
        params = params_of(kernel, rows=outer * inner, length=length, inner=inner)
        grid = target.fold(outer * inner)
        return (Dispatch(kernel, (inp(0, x), out(0, x)), grid, params, flops=5 * x.size),)


@op("Softmax", opsets=range(13, LATEST + 1))
class Softmax(_Softmax):
    """Along one axis."""

    axis: int = -1


@op("LogSoftmax", opsets=range(13, LATEST + 1))
class LogSoftmax(_Softmax):
    """Along one axis."""

    log = True
    axis: int = -1


@op("Softmax", opsets=range(1, 13))
class SoftmaxFlattened(_Softmax):
    """Over all dimensions from `axis` on, taken as one."""

    flatten = True
    axis: int = 1


@op("LogSoftmax", opsets=range(1, 13))
class LogSoftmaxFlattened(_Softmax):
    """Over all dimensions from `axis` on, taken as one."""

    log = True
    flatten = True
    axis: int = 1

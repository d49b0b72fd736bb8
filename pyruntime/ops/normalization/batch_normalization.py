"""BatchNormalization: y = (x - mean) / sqrt(var + epsilon) * scale + b, per channel.

In training mode, the statistics are those of the batch (population variance), and running = input * momentum + batch *
(1 - momentum). Source: ONNX operator BatchNormalization (7, 9, 14, 15).
"""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Operand, Target, elementwise, inp, out, scratch
from pyruntime.kernels.rows.reduce import reduction
from pyruntime.ops.base import LATEST, Op, attributes, op, refuse_float64
from pyruntime.ops.convolution.sliding import accumulator
from pyruntime.ops.operands import reshaped
from pyruntime.ops.reduction.folds import FOLDS

NORMALIZED = "(x - mean) * (scale / sqrt(variance + epsilon)) + b"


@attributes
class _BatchNormalization(Op):
    """BatchNormalization of any version. x: [N, C, D1 .. Dn]; scale, b, mean, var: [C]; floats.

    Before opset 14, `saved` outputs after the running statistics are the mean and variance of the batch.
    """

    saved = 0
    epsilon: float = 1e-5
    momentum: float = 0.9

    @property
    def training(self) -> bool:
        """Whether mean and variance are computed from x (training mode) instead of given."""
        raise NotImplementedError

    @property
    def per_activation(self) -> bool:
        """Whether scale, b, mean and var have shape [C, D1 .. Dn]."""
        return False

    def statistics(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of scale, b, mean and var."""
        return shape[1:] if self.per_activation else shape[1:2]

    def column(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the same shape extended to broadcast to x."""
        return shape[1:] if self.per_activation else (shape[1], *(1,) * (len(shape) - 2))

    def axes(self, rank: int) -> tuple[int, ...]:
        """Return the axes of x that the statistics reduce."""
        return (0,) if self.per_activation else (0, *range(2, rank))

    def infer(
        self, x: TensorType, scale: TensorType, b: TensorType, mean: TensorType, var: TensorType
    ) -> tuple[TensorType, ...]:
        if x.rank < 2:
            self.fail("an input [N, C, ...]", x)
        expected = self.statistics(x.shape)
        for name, given in (("scale", scale), ("B", b), ("mean", mean), ("var", var)):
            if given.shape != expected:
                self.fail(f"{name} {list(expected)}", given)
        if not self.training and len(self.present) > 1 and any(self.present[1:]):
            self.fail("one output where statistics are given", len(self.present))
        y = TensorType(self.floating(x), x.shape)
        running = TensorType(mean.dtype, mean.shape)
        return (y, *(running,) * (2 + self.saved)) if self.training else (y,)

    def evaluate(self, x: Array, scale: Array, b: Array, mean: Array, var: Array) -> tuple[Array, ...]:
        column, wide = self.column(x.shape), x.astype(accumulator(x.dtype), copy=False)
        now_mean, now_var = mean.astype(accumulator(mean.dtype)), var.astype(accumulator(var.dtype))
        if self.training:
            axes = self.axes(x.ndim)
            now_mean, now_var = (f(wide, axis=axes, dtype=np.float64).astype(wide.dtype) for f in (np.mean, np.var))
        factor = scale.reshape(column) / np.sqrt(now_var.reshape(column) + np.float32(self.epsilon))
        y = ((wide - now_mean.reshape(column)) * factor + b.reshape(column)).astype(x.dtype)
        if not self.training:
            return (y,)
        keep = self.momentum
        running = ((o * keep + n * (1 - keep)).astype(mean.dtype) for o, n in ((mean, now_mean), (var, now_var)))
        return (y, *running, *(s.astype(mean.dtype) for s in (now_mean, now_var)[: self.saved]))

    def lower(
        self, target: Target, x: TensorType, scale: TensorType, b: TensorType, mean: TensorType, var: TensorType
    ) -> tuple[Dispatch, ...]:
        refuse_float64(x, scale, mean)
        column = self.column(x.shape)
        steps: tuple[Dispatch, ...] = ()
        statistics = inp(3, mean), inp(4, var)
        if self.training:
            steps, statistics = self._measure(target, x)
        operands = {
            "x": inp(0, x),
            "scale": reshaped(inp(1, scale), *column),
            "b": reshaped(inp(2, b), *column),
            "mean": reshaped(statistics[0], *column),
            "variance": reshaped(statistics[1], *column),
        }
        y = TensorType(x.dtype, x.shape)
        scalars = {"epsilon": self.epsilon}
        steps += (elementwise(target, "batch_normalization", operands, out(0, y), NORMALIZED, scalars),)
        if not self.training:
            return steps
        momentum = {"momentum": self.momentum}
        blend = "old * momentum + now * (1.0 - momentum)"
        for number, (old, now) in enumerate(zip((inp(3, mean), inp(4, var)), statistics, strict=True), 1):
            if self.wants(number):
                result = out(number, TensorType(old.type.dtype, old.type.shape))
                steps += (elementwise(target, "running", {"old": old, "now": now}, result, blend, momentum),)
            if self.wants(number + 2):
                result = out(number + 2, TensorType(old.type.dtype, old.type.shape))
                steps += (elementwise(target, "saved", {"now": now}, result, "now"),)
        return steps

    def _measure(self, target: Target, x: TensorType) -> tuple[tuple[Dispatch, ...], tuple[Operand, Operand]]:
        """Return dispatches that compute the batch's mean and variance in float32, in two passes over x."""
        axes, shape = self.axes(x.rank), self.statistics(x.shape)
        mean, var = scratch(DType.FLOAT, *shape), scratch(DType.FLOAT, *shape)
        squares = scratch(DType.FLOAT, *x.shape)
        halves, singles = FOLDS["Mean"](x.dtype), FOLDS["Mean"](DType.FLOAT)
        assert halves is not None and singles is not None
        column = self.column(x.shape)
        distance = {"x": inp(0, x), "mean": reshaped(mean, *column)}
        steps = (
            *reduction(target, halves, mean, inp(0, x), axes),
            elementwise(target, "squared_distance", distance, squares, "(x - mean) * (x - mean)"),
            *reduction(target, singles, var, squares, axes),
        )
        return steps, (mean, var)


@op("BatchNormalization", opsets=range(14, LATEST + 1))
class BatchNormalization(_BatchNormalization):
    """Outputs y and, in training mode, running_mean and running_var."""

    training_mode: int = 0

    @property
    def training(self) -> bool:
        return bool(self.training_mode)


@op("BatchNormalization", opsets=range(9, 14))
class BatchNormalization9(_BatchNormalization):
    """Training mode is selected by naming more than one output: mean, var, saved_mean, saved_var."""

    saved = 2

    @property
    def training(self) -> bool:
        return any(self.present[1:])


@op("BatchNormalization", opsets=range(7, 9))
class BatchNormalization7(BatchNormalization9):
    """BatchNormalization of opset 9 with `spatial`: 0 gives each activation separate statistics."""

    spatial: int = 1

    @property
    def per_activation(self) -> bool:
        return not self.spatial


@op("BatchNormalization", opsets=range(1, 7))
class BatchNormalization1(BatchNormalization7):
    """BatchNormalization of opset 7, in training mode unless `is_test` is set."""

    consumed_inputs: tuple[int, ...] | None = None
    is_test: int = 0

    @property
    def training(self) -> bool:
        return not self.is_test

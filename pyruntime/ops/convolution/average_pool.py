"""AveragePool: y[n, c, o] = mean over k of x[n, c, o * stride - pad + k * dilation].

The mean is over the window's positions inside the input, or, with count_include_pad, inside the padded input. Positions
that only ceil_mode adds do not count. Source: ONNX operator AveragePool (1, 7, 10, 11, 19, 22).
"""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Target, out
from pyruntime.kernels.windows import Window
from pyruntime.ops.base import LATEST, op, refuse_float64
from pyruntime.ops.convolution.pooling import PoolOp, global_pool, pool
from pyruntime.ops.convolution.sliding import accumulator, filter_positions, padded, trailing
from pyruntime.ops.reduction.folds import FOLDS


@op(
    "AveragePool",
    opsets=range(19, LATEST + 1),
    earlier={
        range(10, 19): "dilations",
        range(7, 10): "dilations ceil_mode",
        range(1, 7): "dilations ceil_mode count_include_pad",
    },
)
class AveragePool(PoolOp):
    """x: [N, C, D1 .. Dn], floats. The mean of an empty window is 0."""

    ceil_mode: int = 0
    count_include_pad: int = 0
    dilations: tuple[int, ...] | None = None
    kernel_shape: tuple[int, ...]

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        self.floating(x)
        return super().infer(x)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        window = self.over(x.shape[2:])
        seen = padded(x.astype(accumulator(x.dtype), copy=False), window.trimmed)
        total = np.zeros((*x.shape[:2], *window.output), seen.dtype)
        for _, slices in filter_positions(window.trimmed):
            total += seen[trailing(*slices)]
        return ((total / np.maximum(self.counts(window), 1)).astype(x.dtype),)

    def counts(self, window: Window) -> Array:
        """Return the number of elements of each mean, [O1 .. On]."""
        counts = np.ones((), np.float32)
        for axis in range(window.rank):
            before, after = (window.begin[axis], window.end[axis]) if self.count_include_pad else (0, 0)
            starts = np.arange(window.output[axis]) * window.strides[axis] - window.begin[axis]
            places = starts[:, None] + np.arange(window.kernel[axis]) * window.dilations[axis]
            along = ((places >= -before) & (places < window.input[axis] + after)).sum(axis=1)
            counts = counts[..., None] * along
        return counts

    def lower(self, target: Target, x: TensorType) -> tuple[Dispatch, ...]:
        refuse_float64(x)
        (y,) = self.infer(x)
        window = self.over(self.spatial(x))
        if not self.count_include_pad:
            window = window.trimmed
        if window.covers_all:
            return global_pool(target, FOLDS["Mean"](x.dtype), x, y)
        return pool(target, "MEAN", window, x, (out(0, y),), count_padding=bool(self.count_include_pad))

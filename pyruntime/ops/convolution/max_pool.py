"""MaxPool: y[n, c, o] = max over k of x[n, c, o * stride - pad + k * dilation], ignoring padding.

Propagates NaN, like NumPy and PyTorch. Source: ONNX operator MaxPool (1, 8, 10, 11, 12, 22).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Target, out
from pyruntime.kernels.windows import Window
from pyruntime.ops.base import LATEST, op, refuse_float64
from pyruntime.ops.convolution.pooling import PoolOp, global_pool, pool
from pyruntime.ops.convolution.sliding import filter_positions, padded, trailing
from pyruntime.ops.reduction.folds import FOLDS


def _lowest(dtype: np.dtype[Any]) -> float | int:
    """Return the smallest value of a dtype (-inf for floats)."""
    return -np.inf if dtype.kind == "f" else int(np.iinfo(dtype).min)


@op(
    "MaxPool",
    opsets=range(10, LATEST + 1),
    earlier={range(8, 10): "dilations ceil_mode", range(1, 8): "dilations ceil_mode storage_order"},
)
class MaxPool(PoolOp):
    """x: [N, C, D1 .. Dn], floats or 8-bit integers. Indices: int64, of the first maximum in flattened x.

    With storage_order 1, indices count the spatial axes in column-major order (D1 fastest).
    """

    ceil_mode: int = 0
    dilations: tuple[int, ...] | None = None
    kernel_shape: tuple[int, ...]
    storage_order: int = 0

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        (y,) = super().infer(x)
        return (y, TensorType(DType.INT64, y.shape)) if self.wants(1) else (y,)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        window = self.over(x.shape[2:]).trimmed
        seen = padded(x, window, _lowest(x.dtype))
        if self.wants(1):
            return self._with_indices(seen, window)
        y = np.full((*x.shape[:2], *window.output), _lowest(x.dtype), x.dtype)
        for _, slices in filter_positions(window):
            np.maximum(y, seen[trailing(*slices)], out=y)
        return (y,)

    def _with_indices(self, seen: Array, window: Window) -> tuple[Array, Array]:
        """Return the maxima of a padded input and their indices: the first of equal elements, never in the padding."""
        lead = seen.shape[:2]
        y = np.full((*lead, *window.output), _lowest(seen.dtype), seen.dtype)
        found = np.zeros(y.shape, bool)
        index = np.full(y.shape, -1, np.int64)
        maps = np.arange(lead[0] * lead[1]).reshape(*lead, *(1,) * window.rank) * int(np.prod(window.input))
        starts = [np.arange(o) * s - b for o, s, b in zip(window.output, window.strides, window.begin, strict=True)]
        for position, slices in filter_positions(window):
            axes = [a + k * d for a, k, d in zip(starts, position, window.dilations, strict=True)]
            places = np.meshgrid(*axes, indexing="ij")
            real = np.all([(p >= 0) & (p < n) for p, n in zip(places, window.input, strict=True)], axis=0)
            order = "F" if self.storage_order else "C"
            clipped = [np.clip(p, 0, n - 1) for p, n in zip(places, window.input, strict=True)]
            flat = np.ravel_multi_index(clipped, window.input, order=order)  # type: ignore[call-overload]
            v = seen[trailing(*slices)]
            better = real & (~found | (v > y) | (np.isnan(v) & ~np.isnan(y)))
            y = np.where(better, v, y)
            index = np.where(better, maps + flat, index)
            found |= real
        return y, index

    def lower(self, target: Target, x: TensorType) -> tuple[Dispatch, ...]:
        refuse_float64(x)
        outputs = self.infer(x)
        window = self.over(self.spatial(x)).trimmed
        if window.covers_all and not self.wants(1):
            return global_pool(target, FOLDS["Max"](x.dtype), x, outputs[0])
        operands = tuple(out(i, t) for i, t in enumerate(outputs))
        return pool(target, "MAXIMUM", window, x, operands, column_major=bool(self.storage_order))

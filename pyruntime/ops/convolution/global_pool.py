"""GlobalAveragePool, GlobalMaxPool, GlobalLpPool: reduce all spatial axes of each channel.

Source: ONNX operators GlobalAveragePool (1, 22), GlobalMaxPool (1, 22), GlobalLpPool (2, 22).
"""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Target
from pyruntime.kernels.rows.reduce import Fold
from pyruntime.ops.base import LATEST, Op, op, refuse_float64
from pyruntime.ops.convolution.pooling import global_pool, norm_fold
from pyruntime.ops.reduction.folds import FOLDS


class _GlobalPool(Op):
    """x: [N, C, D1 .. Dn] to y: [N, C, 1 .. 1]; floats."""

    def fold(self, x: TensorType) -> Fold | None:
        """Return the GPU reduction over the spatial axes, or None."""
        raise NotImplementedError

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        if x.rank < 2:
            self.fail("an input [N, C, D1, ...]", x)
        return (x.with_shape(*x.shape[:2], *(1,) * (x.rank - 2)),)

    def lower(self, target: Target, x: TensorType) -> tuple[Dispatch, ...]:
        refuse_float64(x)
        (y,) = self.infer(x)
        return global_pool(target, self.fold(x), x, y)


def _spatial(x: Array) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


@op("GlobalAveragePool", opsets=range(1, LATEST + 1))
class GlobalAveragePool(_GlobalPool):
    """Mean, accumulated in float32 (on the host in float64). NaN if there are no spatial elements."""

    def fold(self, x: TensorType) -> Fold | None:
        return FOLDS["Mean"](x.dtype)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        axes = _spatial(x)
        count = int(np.prod([x.shape[a] for a in axes], dtype=np.int64))
        total = np.sum(x, axis=axes, keepdims=True, dtype=np.float64)
        return ((total / count if count else np.full_like(total, np.nan)).astype(x.dtype),)


@op("GlobalMaxPool", opsets=range(1, LATEST + 1))
class GlobalMaxPool(_GlobalPool):
    """Maximum; propagates NaN. -inf if there are no spatial elements."""

    def fold(self, x: TensorType) -> Fold | None:
        return FOLDS["Max"](x.dtype)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (np.max(x, axis=_spatial(x), keepdims=True, initial=-np.inf).astype(x.dtype, copy=False),)


@op("GlobalLpPool", opsets=range(2, LATEST + 1))
class GlobalLpPool(_GlobalPool):
    """p-norm: (sum of |x|^p)^(1/p)."""

    p: int = 2

    def fold(self, x: TensorType) -> Fold | None:
        return norm_fold(self.p, x.dtype)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        powers = np.abs(x.astype(np.float64)) ** self.p
        return ((powers.sum(axis=_spatial(x), keepdims=True) ** (1 / self.p)).astype(x.dtype),)

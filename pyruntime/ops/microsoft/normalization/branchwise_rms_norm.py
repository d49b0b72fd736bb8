"""BranchwiseRMSNorm: y = x / sqrt(mean(x²) + epsilon) · scale, per branch. Source: com.microsoft.

Computed in float32 and rounded once.
"""

from __future__ import annotations

import math

import numpy as np

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Target, inp, out
from pyruntime.kernels.rows.rows import Norm, Rows, normalize_rows
from pyruntime.ops.base import Op, op
from pyruntime.ops.microsoft.normalization.streams import branches_of, check_floats
from pyruntime.ops.operands import optional


@op("BranchwiseRMSNorm", opsets=range(1, 2), domain="com.microsoft")
class BranchwiseRMSNorm(Op):
    """x: [.., C, H], or [.., C · H] with `num_branches`; scale: [C · H], [C, H] or [H], default ones; y: like x."""

    num_branches: int = 0
    epsilon: float = 1e-5

    def infer(self, x: TensorType, scale: TensorType | None = None) -> tuple[TensorType, ...]:
        check_floats(self, x, scale)
        _, c, h = branches_of(self, x, self.num_branches)
        if scale is not None and scale.shape not in ((c * h,), (c, h), (h,)):
            self.fail(f"a scale [{c * h}], [{c}, {h}] or [{h}]", scale)
        return (TensorType(x.dtype, x.shape),)

    def evaluate(self, x: Array, scale: Array | None = None) -> tuple[Array, ...]:
        _, c, h = branches_of(self, x, self.num_branches)
        rows = x.astype(np.float32).reshape(-1, c, h)
        with np.errstate(all="ignore"):
            squares = np.mean(np.square(rows), axis=-1, keepdims=True, dtype=np.float32)
            y = rows / np.sqrt(squares + np.float32(self.epsilon))
            if scale is not None:
                y = y * scale.astype(np.float32).reshape(-1, h)
        return (y.reshape(x.shape).astype(x.dtype),)

    def lower(self, target: Target, x: TensorType, scale: TensorType | None = None) -> tuple[Dispatch, ...]:
        (y,) = self.infer(x, scale)
        lead, c, h = branches_of(self, x, self.num_branches)
        shared = scale is None or scale.shape == (h,)
        gain = optional(1, scale)
        norm = Norm(self.epsilon, True, gain, scales=1 if shared else c)
        return (normalize_rows(target, out(0, y), inp(0, x), Rows(math.prod(lead) * c, h, 1), norm),)

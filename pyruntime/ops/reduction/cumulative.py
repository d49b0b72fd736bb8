"""CumSum and CumProd: cumulative sums and products along an axis. Source: ONNX operators CumSum, CumProd.

Integers wrap. 16-bit floats are accumulated in float32, and each output element is rounded.
"""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Target, inp, out
from pyruntime.kernels.rows.rows import Scan, rows_of, scan_rows
from pyruntime.ops.base import LATEST, Op, attributes, op, refuse_float64


@attributes
class _Cumulative(Op):
    """Base of CumSum and CumProd.

    `exclusive`: exclude the element itself. `reverse`: from the last element to the first.
    """

    exclusive: int = 0
    reverse: int = 0

    @property
    def product(self) -> bool:
        return self.op_type == "CumProd"

    def infer(self, x: TensorType, axis: TensorType) -> tuple[TensorType, ...]:
        if axis.size != 1:
            self.fail("one axis", axis)
        self.axis_of(axis.ints()[0], x.rank)
        return (TensorType(x.dtype, x.shape),)

    def evaluate(self, x: Array, axis: Array) -> tuple[Array, ...]:
        if not x.ndim:
            neutral = np.ones_like(x) if self.product else np.zeros_like(x)
            return (neutral if self.exclusive else x,)
        along = self.axis_of(int(axis.reshape(-1)[0]), x.ndim)
        wide = np.float64 if x.dtype.kind == "f" else x.dtype
        view = np.flip(x, along) if self.reverse else x
        y = (np.cumprod if self.product else np.cumsum)(view, axis=along, dtype=wide)
        if self.exclusive:
            y = np.roll(y, 1, along)
            y[(slice(None),) * along + (slice(0, 1),)] = 1 if self.product else 0
        return ((np.flip(y, along) if self.reverse else y).astype(x.dtype),)

    def lower(self, target: Target, x: TensorType, axis: TensorType) -> tuple[Dispatch, ...]:
        refuse_float64(x)
        rows = rows_of(x.shape, self.axis_of(axis.ints()[0], x.rank))
        scan = Scan(self.product, bool(self.exclusive), bool(self.reverse))
        return (scan_rows(target, out(0, x), inp(0, x), rows, scan),)


@op("CumSum", opsets=range(11, LATEST + 1))
class CumSum(_Cumulative):
    """y[k] = x[0] + ... + x[k]."""


@op("CumProd", opsets=range(26, LATEST + 1))
class CumProd(_Cumulative):
    """y[k] = x[0] · ... · x[k]."""

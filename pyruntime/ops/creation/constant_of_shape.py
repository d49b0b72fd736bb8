"""ConstantOfShape: a tensor filled with one value. Source: ONNX operator ConstantOfShape."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, Constant, DType, TensorType
from pyruntime.ir.encoding import encode
from pyruntime.kernels import Dispatch, Target, fill, out
from pyruntime.ops.base import LATEST, Op, op


@op("ConstantOfShape", opsets=range(9, LATEST + 1))
class ConstantOfShape(Op):
    """shape: int64 of rank 1 or more, read flat; value: a tensor with one element, default float32 0."""

    value: Constant | None = None

    def element(self) -> tuple[DType, Array]:
        """Return the dtype and the fill value as a scalar. Raises InvalidGraph unless `value` has one element."""
        if self.value is None:
            return DType.FLOAT, np.zeros((), np.float32)
        if self.value.type.size != 1:
            self.fail("a value of one element", self.value.type)
        return self.value.type.dtype, self.value.numpy().reshape(())

    def infer(self, shape: TensorType) -> tuple[TensorType, ...]:
        if not shape.rank or shape.dtype is not DType.INT64:
            self.fail("an int64 shape of rank 1 or more", shape)
        dims = shape.ints()
        if any(d < 0 for d in dims):
            self.fail("dimensions of at least 0", list(dims))
        return (TensorType(self.element()[0], dims),)

    def evaluate(self, shape: Array) -> tuple[Array, ...]:
        return (np.broadcast_to(self.element()[1], tuple(shape.reshape(-1).tolist())),)

    def lower(self, target: Target, shape: TensorType) -> tuple[Dispatch, ...]:
        (y,) = self.infer(shape)
        dtype, value = self.element()
        pattern = encode(np.full(128 // dtype.bits, value, value.dtype), dtype).tobytes()
        return (fill(target, "constant_of_shape", out(0, y), pattern),)

"""ArrayFeatureExtractor: columns of x. Source: ONNX operator ai.onnx.ml.ArrayFeatureExtractor."""

from __future__ import annotations

from pyruntime import errors
from pyruntime.ir import Array, DType, TensorType
from pyruntime.ops._ml import ALL
from pyruntime.ops.base import Op, op


@op("ArrayFeatureExtractor", domain="ai.onnx.ml", opsets=ALL)
class ArrayFeatureExtractor(Op):
    """z[..., k] = x[..., y[k]]; x of rank 1 is one row. y: int64, its shape does not matter.

    Raises:
        RuntimeException: an index outside [0, size of x's last axis).
    """

    def infer(self, x: TensorType, y: TensorType) -> tuple[TensorType, ...]:
        if x.rank == 0 or y.dtype is not DType.INT64 or y.size == 0:
            self.fail("a tensor of rank 1 or more and int64 indices", f"{x} and {y}")
        return (x.with_shape(*((1,) if x.rank == 1 else x.shape[:-1]), y.size),)

    def evaluate(self, x: Array, y: Array) -> tuple[Array, ...]:
        index = y.reshape(-1)
        outside = index[(index < 0) | (index >= x.shape[-1])]
        if outside.size:
            raise errors.RuntimeException(
                f"{self.op_type}: expected indices in [0, {x.shape[-1]}), got {int(outside[0])}"
            )
        z = x[..., index]
        return (z.reshape(1, -1) if x.ndim == 1 else z,)

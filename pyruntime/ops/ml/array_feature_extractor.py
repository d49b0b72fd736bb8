"""ArrayFeatureExtractor: columns of x. Source: ONNX operator ai.onnx.ml.ArrayFeatureExtractor."""

from __future__ import annotations

import numpy as np

from pyruntime import errors
from pyruntime.ir import Array, Constant, DType, TensorType
from pyruntime.kernels import Dispatch, Source, Target, bits_type, constant, gather_map, inp, out
from pyruntime.ops.base import Op, Unsupported, op
from pyruntime.ops.ml.shared import ALL


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

    def lower(self, target: Target, x: TensorType, y: TensorType) -> tuple[Dispatch, ...]:
        if not y.is_known:
            raise Unsupported("indices that are not constant are checked on the host")
        index = y.value().reshape(-1)
        if x.dtype.compute == "" or ((index < 0) | (index >= x.shape[-1])).any():
            raise Unsupported("strings and indices outside are for the host")
        (z,) = self.infer(x, y)
        bits = bits_type(x.dtype)
        columns = constant(Constant.from_array(index.astype(np.uint32)))
        element = (
            "let row = i / params.columns;\n  return load_x(row * params.width + load_index(i - row * params.columns));"
        )
        sources = [Source("x", inp(0, TensorType(bits, x.shape))), Source("index", columns)]
        output = out(0, TensorType(bits, z.shape))
        values = {"columns": index.size, "width": x.shape[-1]}
        return (gather_map(target, "array_feature_extractor", output, sources, element, values),)

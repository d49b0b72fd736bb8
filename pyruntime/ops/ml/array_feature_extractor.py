"""ArrayFeatureExtractor: columns of x. Source: ONNX operator ai.onnx.ml.ArrayFeatureExtractor."""

from __future__ import annotations

import numpy as np

from pyruntime import errors
from pyruntime.ir import DType, TensorType
from pyruntime.ops.base import op
from pyruntime.ops.decomposed import Decomposed, Expansion
from pyruntime.ops.ml.shared import ALL


@op("ArrayFeatureExtractor", domain="ai.onnx.ml", opsets=ALL)
class ArrayFeatureExtractor(Decomposed):
    """z[..., k] = x[..., y[k]]; x of rank 1 is one row. y: int64, its shape does not matter.

    Raises:
        RuntimeException: an index outside [0, size of x's last axis).
    """

    def expand(self, body: Expansion, x: TensorType, y: TensorType) -> tuple[TensorType | None, ...]:
        if x.rank == 0 or y.dtype is not DType.INT64 or y.size == 0:
            self.fail("a tensor of rank 1 or more and int64 indices", f"{x} and {y}")
        index = y.value().reshape(-1) if y.is_known else np.empty(0, np.int64)
        outside = index[(index < 0) | (index >= x.shape[-1])]
        if outside.size:
            raise errors.RuntimeException(
                f"{self.op_type}: expected indices in [0, {x.shape[-1]}), got {int(outside[0])}"
            )
        rows = x if x.rank > 1 else body("Unsqueeze", x, body.ints(0))
        return (body("Gather", rows, body("Reshape", y, body.ints(-1)), axis=-1),)

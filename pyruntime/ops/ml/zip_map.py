"""ZipMap: convert rows to maps from class labels to scores. Source: ONNX operator ai.onnx.ml.ZipMap."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.ir import Array, DType, MapType, SequenceType, TensorType, ValueType
from pyruntime.ops.base import Op, op
from pyruntime.ops.ml.shared import ALL


@op("ZipMap", domain="ai.onnx.ml", opsets=ALL)
class ZipMap(Op):
    """z[n] = {label[e]: x[n, e]}. x: float32 [N, E], or [E] as one row; one label per column."""

    classlabels_int64s: tuple[int, ...] | None = None
    classlabels_strings: tuple[str, ...] | None = None

    def infer(self, x: TensorType) -> tuple[ValueType, ...]:
        labels = self.classlabels_strings or self.classlabels_int64s or ()
        if bool(self.classlabels_int64s) == bool(self.classlabels_strings):
            self.fail("one of classlabels_int64s and classlabels_strings", "both or neither")
        if x.rank not in (1, 2) or x.shape[-1] != len(labels) or x.dtype is not DType.FLOAT:
            self.fail(f"a tensor float[N,{len(labels)}]", x)
        key = DType.STRING if self.classlabels_strings else DType.INT64
        return (SequenceType(MapType(key, DType.FLOAT)),)

    def evaluate(self, x: Array) -> tuple[list[dict[Any, float]], ...]:
        labels: tuple[Any, ...] = self.classlabels_strings or self.classlabels_int64s or ()
        return ([dict(zip(labels, row, strict=True)) for row in np.atleast_2d(x).tolist()],)

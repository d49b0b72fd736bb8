"""FeatureVectorizer: concatenate inputs along columns. Source: ONNX operator ai.onnx.ml.FeatureVectorizer."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.ops.base import Op, op
from pyruntime.ops.ml.shared import ALL, matrix


@op("FeatureVectorizer", domain="ai.onnx.ml", opsets=ALL)
class FeatureVectorizer(Op):
    """y = [x_0, x_1, ...], float32 [N, sum of widths].

    x_i: [N, C_i], or [C_i] as one row; truncated or zero-padded to `inputdimensions[i]` columns.
    """

    inputdimensions: tuple[int, ...] | None = None

    def _widths(self, columns: list[int]) -> tuple[int, ...]:
        widths = self.inputdimensions or tuple(columns)
        if len(widths) != len(columns) or min(widths, default=0) < 0:
            self.fail(f"{len(columns)} inputdimensions of 0 and more", list(widths))
        return widths

    def infer(self, *xs: TensorType) -> tuple[TensorType, ...]:
        shapes = [matrix(self, x) for x in xs]
        if not xs or any(rows != shapes[0][0] for rows, _ in shapes):
            self.fail("inputs of one number of rows", [str(x) for x in xs])
        self.same_dtype(*xs)
        return (TensorType(DType.FLOAT, (shapes[0][0], sum(self._widths([c for _, c in shapes])))),)

    def evaluate(self, *xs: Array) -> tuple[Array, ...]:
        rows = [np.atleast_2d(x) for x in xs]
        widths = self._widths([x.shape[1] for x in rows])
        y = np.zeros((len(rows[0]), sum(widths)), np.float32)
        begin = 0
        for x, width in zip(rows, widths, strict=True):
            taken = min(width, x.shape[1])
            y[:, begin : begin + taken] = x[:, :taken]
            begin += width
        return (y,)

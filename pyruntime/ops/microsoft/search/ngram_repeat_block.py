"""NGramRepeatBlock: set scores of tokens that would repeat an n-gram to -inf. Source: com.microsoft."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.ops.base import Op, op
from pyruntime.ops.microsoft.search.ngrams import repeating


@op("NGramRepeatBlock", opsets=range(1, 2), domain="com.microsoft")
class NGramRepeatBlock(Op):
    """ids: int64 [B, L]; scores, y: float32 [B, V]; n: `ngram_size`."""

    ngram_size: int

    def infer(self, ids: TensorType, scores: TensorType) -> tuple[TensorType, ...]:
        if self.ngram_size < 1:
            self.fail("ngram_size >= 1", self.ngram_size)
        if ids.dtype is not DType.INT64 or scores.dtype is not DType.FLOAT:
            self.fail("int64 ids and float32 scores", f"{ids} and {scores}")
        if ids.rank != 2 or scores.rank != 2 or ids.shape[0] != scores.shape[0]:
            self.fail("ids [B, L] and scores [B, V]", f"{ids} and {scores}")
        return (TensorType(scores.dtype, scores.shape),)

    def evaluate(self, ids: Array, scores: Array) -> tuple[Array, ...]:
        y = scores.copy()
        rows, tokens = repeating(ids, self.ngram_size)
        if ((tokens < 0) | (tokens >= y.shape[1])).any():
            self.fail(f"tokens from 0 to {y.shape[1] - 1}", f"{tokens.min()} to {tokens.max()}")
        y[rows, tokens] = -np.inf
        return (y,)

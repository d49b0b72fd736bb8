"""OneHotEncoder: one-hot encoding of categories. Source: ONNX operator ai.onnx.ml.OneHotEncoder."""

from __future__ import annotations

import numpy as np

from pyruntime import errors
from pyruntime.ir import Array, DType, TensorType
from pyruntime.ops.base import Op, op
from pyruntime.ops.ml.shared import ALL, numbers


@op("OneHotEncoder", domain="ai.onnx.ml", opsets=ALL)
class OneHotEncoder(Op):
    """y[..., k] = 1 where x[...] is category k, else 0; float32, with one dimension more than x.

    Numbers are truncated and looked up in cats_int64s, strings in cats_strings. Of equal categories the last one
    counts.

    Raises:
        RuntimeException: an unknown category; with `zeros` 1 it gives zeros instead.
    """

    cats_int64s: tuple[int, ...] | None = None
    cats_strings: tuple[str, ...] | None = None
    zeros: int = 1

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        if bool(self.cats_int64s) == bool(self.cats_strings):
            self.fail("one of cats_int64s and cats_strings", "both or neither")
        if self.cats_int64s:
            numbers(self, x)
        elif x.dtype is not DType.STRING:
            self.fail("strings, as the categories are", x)
        return (TensorType(DType.FLOAT, (*x.shape, len(self.cats_int64s or self.cats_strings or ()))),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        if self.cats_int64s:
            categories, items = np.array(self.cats_int64s, np.int64), np.trunc(x)
        else:
            categories, items = np.array(self.cats_strings, object), x
        last = {category: place for place, category in enumerate(categories.tolist())}
        y = (items[..., None] == categories) & np.isin(np.arange(len(categories)), list(last.values()))
        if not self.zeros and not y.any(axis=-1).all():
            stranger = items[~y.any(axis=-1)].tolist()[0]
            raise errors.RuntimeException(f"{self.op_type}: expected one of {categories.tolist()}, got {stranger!r}")
        return (y.astype(np.float32),)

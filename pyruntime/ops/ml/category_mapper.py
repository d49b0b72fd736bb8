"""CategoryMapper: map strings to integers or vice versa. Source: ONNX operator ai.onnx.ml.CategoryMapper."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.ir import Array, DType, TensorType, are_open
from pyruntime.ops.base import Op, op
from pyruntime.ops.ml.shared import ALL


@op("CategoryMapper", domain="ai.onnx.ml", opsets=ALL)
class CategoryMapper(Op):
    """y = cats_int64s[i] where x = cats_strings[i], or vice versa for integers; else the default."""

    cats_int64s: tuple[int, ...] | None = None
    cats_strings: tuple[str, ...] | None = None
    default_int64: int = -1
    default_string: str = "_Unused"

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        if len(self.cats_int64s or ()) != len(self.cats_strings or ()):
            self.fail("as many cats_int64s as cats_strings", f"{self.cats_int64s} and {self.cats_strings}")
        if x.dtype not in (DType.STRING, DType.INT64):
            self.fail("strings or int64", x)
        return (TensorType(DType.INT64 if x.dtype is DType.STRING else DType.STRING, x.shape),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        pairs = list(zip(self.cats_strings or (), self.cats_int64s or (), strict=True))
        x = x.astype(np.int64) if are_open(x) else x
        if x.dtype == object:
            numbers = dict(pairs)
            y: list[Any] = [numbers.get(text, self.default_int64) for text in x.reshape(-1)]
            return (np.array(y, np.int64).reshape(x.shape),)
        texts = {number: text for text, number in pairs}
        y = [texts.get(number, self.default_string) for number in x.reshape(-1).tolist()]
        return (np.array(y, object).reshape(x.shape),)

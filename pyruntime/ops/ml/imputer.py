"""Imputer: y = a replacement where x is the missing value. Source: ONNX operator ai.onnx.ml.Imputer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pyruntime.ir import Array, TensorType
from pyruntime.ops.base import op
from pyruntime.ops.decomposed import Decomposed, Expansion
from pyruntime.ops.ml.shared import ALL, numbers


@op("Imputer", domain="ai.onnx.ml", opsets=ALL)
class Imputer(Decomposed):
    """x: [N, F] or [F]; the replacements are F numbers; where there are more or fewer, the first is for all.

    A missing value of NaN stands for every NaN. An x of another rank counts as rows of as many numbers as its second
    dimension has, as in onnxruntime.
    """

    imputed_value_floats: tuple[float, ...] | None = None
    imputed_value_int64s: tuple[int, ...] | None = None
    replaced_value_float: float = 0.0
    replaced_value_int64: int = 0

    def expand(self, body: Expansion, x: TensorType) -> tuple[TensorType | None, ...]:
        numbers(self, x)
        values = self.imputed_value_floats if x.dtype.is_float else self.imputed_value_int64s
        if not values:
            self.fail(f"imputed_value_{'floats' if x.dtype.is_float else 'int64s'}", "none")
        if x.rank == 0:
            self.fail("a tensor of rank 1 or more", x)
        missing = self.replaced_value_float if x.dtype.is_float else self.replaced_value_int64
        is_missing = body("IsNaN", x) if math.isnan(missing) else body("Equal", x, body.number(missing, x.dtype))
        replacements = body.constant(self._values(values, x.shape, x.dtype.numpy), x.dtype)
        return (body("Where", is_missing, replacements, x),)

    def _values(self, listed: Sequence[float], shape: tuple[int, ...], dtype: Any) -> Array:
        """The replacements, as they are broadcast to x."""
        values = np.array(listed, dtype)
        if len(values) != shape[min(1, len(shape) - 1)]:
            return values[:1]
        return values if len(shape) <= 2 else np.resize(values, shape)

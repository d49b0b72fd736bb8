"""Imputer: replace missing values. Source: ONNX operator ai.onnx.ml.Imputer."""

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
    """x: [N, F] or [F]; replacements: F numbers. With any other number of them, the first replaces all missing values.

    If the missing value is NaN, all NaNs are replaced. x of another rank is treated as rows of x.shape[1] elements, as
    in onnxruntime.
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
        """Return the replacements in a shape that broadcasts to x."""
        values = np.array(listed, dtype)
        if len(values) != shape[min(1, len(shape) - 1)]:
            return values[:1]
        return values if len(shape) <= 2 else np.resize(values, shape)

"""Imputer: replace missing values. Source: ONNX operator ai.onnx.ml.Imputer."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pyruntime.ir import Array, Constant, TensorType
from pyruntime.kernels import Dispatch, Target, constant, elementwise, inp, out
from pyruntime.ops.base import Op, Unsupported, op
from pyruntime.ops.ml.shared import ALL, numbers


@op("Imputer", domain="ai.onnx.ml", opsets=ALL)
class Imputer(Op):
    """x: [N, F] or [F]; replacements: F numbers. With any other number of them, the first replaces all missing values.

    If the missing value is NaN, all NaNs are replaced. x of another rank is treated as rows of x.shape[1] elements, as
    in onnxruntime.
    """

    imputed_value_floats: tuple[float, ...] | None = None
    imputed_value_int64s: tuple[int, ...] | None = None
    replaced_value_float: float = 0.0
    replaced_value_int64: int = 0

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        numbers(self, x)
        values = self.imputed_value_floats if x.dtype.is_float else self.imputed_value_int64s
        if not values:
            self.fail(f"imputed_value_{'floats' if x.dtype.is_float else 'int64s'}", "none")
        if x.rank == 0:
            self.fail("a tensor of rank 1 or more", x)
        return (TensorType(x.dtype, x.shape),)

    def _values(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """Return the replacements in a shape that broadcasts to x."""
        listed = self.imputed_value_floats if np.dtype(dtype).kind == "f" else self.imputed_value_int64s
        values = np.array(listed, dtype)
        if len(values) != shape[min(1, len(shape) - 1)]:
            return values[:1]
        return values if len(shape) <= 2 else np.resize(values, shape)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        if x.dtype.kind == "f":
            missing = self.replaced_value_float
            found = np.isnan(x) if math.isnan(missing) else x == x.dtype.type(missing)
        else:
            found = x == self.replaced_value_int64
        return (np.where(found, self._values(x.shape, x.dtype), x),)

    def lower(self, target: Target, x: TensorType) -> tuple[Dispatch, ...]:
        if x.dtype.compute != "f32":
            raise Unsupported(f"{x.dtype.onnx_name} is imputed on the host")
        nan = math.isnan(self.replaced_value_float)
        value = constant(Constant.from_array(self._values(x.shape, np.float32)))
        expr = f"select(x, v, {'is_nan(x)' if nan else 'x == missing && !is_nan(x)'})"
        scalars = {} if nan else {"missing": float(self.replaced_value_float)}
        name = "imputer_nan" if nan else "imputer"
        return (elementwise(target, name, {"x": inp(0, x), "v": value}, out(0, x), expr, scalars),)

"""Range: start, start + delta, start + 2 delta, ... up to limit, excluded. Source: ONNX operator Range.

n = max(ceil((limit - start) / delta), 0). Exact for integers. For floats, as in ONNX's shape inference, the difference
has the inputs' type (at least float32) and the quotient is float64.
"""

from __future__ import annotations

import math

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Target, gather_map, out
from pyruntime.ops.base import LATEST, Op, op, refuse_float64


@op("Range", opsets=range(27, LATEST + 1), earlier={range(11, 27): "stash_type"})
class Range(Op):
    """start, limit, delta: scalars of one type. float16 and bfloat16 are computed in float32."""

    stash_type: int = 1

    def count(self, start: Array, limit: Array, delta: Array) -> int:
        """Return the number of elements. Raises InvalidGraph if delta is 0 or the count is not finite."""
        if any(v.size != 1 for v in (start, limit, delta)):
            self.fail("scalars", [list(v.shape) for v in (start, limit, delta)])
        if not delta.reshape(()):
            self.fail("a nonzero delta", 0)
        if start.dtype.kind == "f":
            wide = np.result_type(start, np.float32)
            span = limit.reshape(()).astype(wide) - start.reshape(()).astype(wide)
            steps = float(span) / float(delta.reshape(()))
            if not math.isfinite(steps):
                self.fail("a finite number of elements", steps)
            return max(math.ceil(steps), 0)
        first, last, step = (v.reshape(()).item() for v in (start, limit, delta))
        count: int = max(-((first - last) // step), 0)
        return count

    def infer(self, start: TensorType, limit: TensorType, delta: TensorType) -> tuple[TensorType, ...]:
        dtype = self.same_dtype(start, limit, delta)
        if self.stash_type != 1 and dtype in (DType.FLOAT16, DType.BFLOAT16):
            self.fail("stash_type 1 (float)", self.stash_type)
        return (TensorType(dtype, (self.count(start.value(), limit.value(), delta.value()),)),)

    def evaluate(self, start: Array, limit: Array, delta: Array) -> tuple[Array, ...]:
        n, dtype = self.count(start, limit, delta), start.dtype
        first, step = start.reshape(()), delta.reshape(())
        if dtype == np.float16:
            first, step = first.astype(np.float32), step.astype(np.float32)
        return ((first + np.arange(n).astype(first.dtype) * step).astype(dtype),)

    def lower(self, target: Target, start: TensorType, limit: TensorType, delta: TensorType) -> tuple[Dispatch, ...]:
        (y,) = self.infer(start, limit, delta)
        kind = y.dtype.compute
        first, step = start.value().reshape(()), delta.value().reshape(())
        refuse_float64(y)
        if y.dtype is DType.INT64:
            numbers = {"first": first.item(), "step": step.item()}
            words = {f"{n}_{part}": v >> shift for n, v in numbers.items() for part, shift in (("lo", 0), ("hi", 32))}
            element = """let first = vec2<u32>(params.first_lo, params.first_hi);
  return i64_add(first, i64_mul(vec2<u32>(i, 0u), vec2<u32>(params.step_lo, params.step_hi)));"""
            return (gather_map(target, "range_i64", out(0, y), [], element, words),)
        element = f"return params.first + {kind}(i) * params.step;"
        values = {"first": first.item(), "step": step.item()}
        kinds = dict.fromkeys(values, kind)
        return (gather_map(target, f"range_{kind}", out(0, y), [], element, values, kinds=kinds),)

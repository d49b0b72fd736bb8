"""ReverseSequence: y[t, b] = x[lens[b] - 1 - t, b] for t < lens[b], else x[t, b]. Source: ONNX."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pyruntime.ir import Array, Bound, DType, TensorType
from pyruntime.kernels import Dispatch, Target, Unit, inp, move, out
from pyruntime.ops.base import LATEST, Op, op


@op("ReverseSequence", opsets=range(10, LATEST + 1))
class ReverseSequence(Op):
    """x: rank 2 or more; its first two axes are time and batch in either order; lens: int64 [batch]."""

    batch_axis: int = 1
    time_axis: int = 0

    def infer(self, x: TensorType, lens: TensorType) -> tuple[TensorType, ...]:
        if {self.batch_axis, self.time_axis} != {0, 1}:
            self.fail("axes 0 and 1", [self.batch_axis, self.time_axis])
        if x.rank < 2:
            self.fail("an input of rank 2 or more", x)
        if lens.dtype is not DType.INT64 or lens.shape != (x.shape[self.batch_axis],):
            self.fail(f"sequence_lens of int64[{x.shape[self.batch_axis]}]", lens)
        return (TensorType(x.dtype, x.shape),)

    def bounds(self, *inputs: Any) -> Sequence[Bound]:
        most, reason = inputs[0].shape[self.time_axis], f"the elements of axis {self.time_axis}"
        return [Bound(1, 0, most, "lengths", reason, "give shorter ones or pad x")]

    def evaluate(self, x: Array, lens: Array) -> tuple[Array, ...]:
        self.check_bounds(x, lens)
        length, batch = x.shape[self.time_axis], x.shape[self.batch_axis]
        times = np.arange(length)[:, None]
        times = np.where(times < lens, lens - 1 - times, times)
        rows = np.arange(batch)
        return (x[times, rows] if self.time_axis == 0 else x[rows[:, None], times.T],)

    def lower(self, target: Target, x: TensorType, lens: TensorType) -> tuple[Dispatch, ...]:
        inner = math.prod(x.shape[2:])
        unit = Unit.widest(x.dtype, inner)
        time, batch = ("outer", "middle") if self.time_axis == 0 else ("middle", "outer")
        element = f"""let row = i / params.inner;
  let outer = row / params.middle;
  let middle = row - outer * params.middle;
  let length = clamp(i64_saturate(load_lens({batch})), 0, i32(params.times));
  if (i32({time}) >= length) {{ return {unit.load}_x(i); }}
  let shift = (u32(length) - 1u - {time}) - {time};
  return {unit.load}_x(i + shift * params.inner{" * params.middle" if self.time_axis == 0 else ""});"""
        values = {"inner": inner // unit.width, "middle": x.shape[1], "times": x.shape[self.time_axis]}
        name = f"reverse_sequence_{self.time_axis}"
        others = {"lens": inp(1, lens)}
        (y,) = self.infer(x, lens)
        return (move(target, name, unit, out(0, y), {"x": inp(0, x)}, element, values, others),)

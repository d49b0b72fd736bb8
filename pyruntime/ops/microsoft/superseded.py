"""Operators of com.microsoft that ONNX adopted later; they expand to ONNX's operators.

torch.onnx writes GridSample, Trilu and Gelu with onnxruntime's contrib symbolics registered.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.ir import DType, TensorType
from pyruntime.ops.base import Op, op
from pyruntime.ops.decomposed import Decomposed, Expansion
from pyruntime.ops.registry import newest, op_class


@op("Trilu", opsets=range(1, 2), domain="com.microsoft")
class Trilu(Decomposed):
    """x: [.., M, N]; k: int64 scalar, the diagonal that bounds the triangle."""

    upper: int = 1

    def expand(self, body: Expansion, x: TensorType, k: TensorType | None = None) -> tuple[TensorType | None, ...]:
        return (body("Trilu", x, k, upper=self.upper),)


@op("GridSample", opsets=range(1, 2), domain="com.microsoft")
class GridSample(Decomposed):
    """x: [N, C, H, W], grid: [N, H', W', 2]; mode: bilinear, nearest, bicubic."""

    align_corners: int = 0
    mode: str = "bilinear"
    padding_mode: str = "zeros"

    def expand(self, body: Expansion, x: TensorType, grid: TensorType) -> tuple[TensorType | None, ...]:
        form: Any = op_class("GridSample", "", 16)
        sample: Op = form(align_corners=self.align_corners, mode=self.mode, padding_mode=self.padding_mode)
        return body.apply(sample, x, grid)[:1]


@op("GatherND", opsets=range(1, 2), domain="com.microsoft")
class GatherND(Decomposed):
    """data: any type; indices: int32 or int64 [.., n]."""

    def expand(self, body: Expansion, data: TensorType, indices: TensorType) -> tuple[TensorType | None, ...]:
        return (body("GatherND", data, body.cast(indices, DType.INT64)),)


@op("ExpandDims", opsets=range(1, 2), domain="com.microsoft")
class ExpandDims(Decomposed):
    """x: any type; axis: int32 scalar, whose value planning needs."""

    def expand(self, body: Expansion, x: TensorType, axis: TensorType) -> tuple[TensorType | None, ...]:
        if axis.size != 1:
            self.fail("a single axis", axis)
        return (body("Unsqueeze", x, body.ints(*axis.ints())),)


@op("Pad", opsets=range(1, 2), domain="com.microsoft")
class Pad(Decomposed):
    """pads: int64 [2 · rank] or [1, 2 · rank], whose value planning needs; value: one element.

    mode: constant, reflect or edge.
    """

    mode: str = "constant"

    def expand(
        self, body: Expansion, data: TensorType, pads: TensorType, value: TensorType | None = None
    ) -> tuple[TensorType | None, ...]:
        if value is not None and value.rank:
            if value.size != 1:
                self.fail("a value of one element", value)
            value = body("Reshape", value, body.ints())
        return (body("Pad", data, body.ints(*pads.ints()), value, mode=self.mode),)


@op("Range", opsets=range(1, 2), domain="com.microsoft")
class Range(Decomposed):
    """start, limit, delta (default 1): one element each, whose values planning needs."""

    def expand(
        self, body: Expansion, start: TensorType, limit: TensorType, delta: TensorType | None = None
    ) -> tuple[TensorType | None, ...]:
        given = (start, limit, *(() if delta is None else (delta,)))
        dtype = self.same_dtype(*given)
        if any(x.size != 1 for x in given):
            self.fail("bounds of one element", ", ".join(map(str, given)))
        numbers = [x.value().reshape(()) for x in given]
        numbers += [np.ones((), dtype.numpy)] * (3 - len(numbers))
        if numbers[2] == 0:
            self.fail("a nonzero delta", "0")
        return (body.constant(newest("Range").evaluate(*numbers)[0], dtype),)


@op("Unique", opsets=range(1, 2), domain="com.microsoft")
class Unique(Decomposed):
    """x: [n]. Outputs: distinct elements in order of first occurrence, index in them of each x, and counts."""

    def expand(self, body: Expansion, x: TensorType) -> tuple[TensorType | None, ...]:
        if x.rank != 1:
            self.fail("a vector", x)
        y, _, places, counts = body.apply(newest("Unique", sorted=0, present=(True,) * 4), x)
        return y, places, counts

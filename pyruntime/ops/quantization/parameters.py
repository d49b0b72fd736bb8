"""Scales and zero points of linear quantization: per tensor, per axis, or per block."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Operand, Source, Target, elementwise, gather_map
from pyruntime.kernels.ir.indexing import contiguous
from pyruntime.ops.base import Op
from pyruntime.ops.operands import reshaped

__all__ = ["RANGES", "Granularity", "ScaledOp", "quantized"]

RANGES = {dtype: dtype.limits for dtype in DType if dtype.is_integer and dtype.bits <= 16}
"""Range of each quantized type."""


@dataclass(frozen=True, slots=True)
class Granularity:
    """Which elements of x share a scale.

    Attributes:
        shape: x as (outer, axis, inner); axis is 1 for a scale per tensor.
        block: number of elements along the axis that share a scale.
        whole: the scales are per tensor or per axis, so they repeat over outer and inner.
    """

    shape: tuple[int, int, int]
    block: int
    whole: bool

    @property
    def blocks(self) -> int:
        """Number of scales along the axis."""
        return -(-self.shape[1] // self.block) if self.block else 0

    @property
    def scales(self) -> tuple[int, int, int]:
        """Shape of the scales, which corresponds to `shape`."""
        return (1, self.blocks, 1) if self.whole else (self.shape[0], self.blocks, self.shape[2])

    def spread(self, values: Array) -> Array:
        """Expand one value per scale to an array that broadcasts to `shape`."""
        values = values.reshape(self.scales)
        if self.block > 1:
            values = np.repeat(values, self.block, axis=1)[:, : self.shape[1]]
        return values

    def kernel(
        self,
        target: Target,
        name: str,
        operands: Mapping[str, Operand],
        y: Operand,
        expr: str,
    ) -> Dispatch:
        """Return the dispatch of y = expr(x, scale, ...). The first operand is x, others are scales or zero points."""
        names = list(operands)
        y = reshaped(y, *self.shape)
        shapes = dict.fromkeys(names, self.scales) | {names[0]: self.shape}
        views = {n: reshaped(o, *shapes[n]) for n, o in operands.items()}
        if self.block == 1:
            return elementwise(target, name, views, y, expr)
        outer, _, _ = contiguous(self.scales)
        arguments = ", ".join(f"{n}: {o.type.dtype.compute}" for n, o in operands.items())
        loads = ", ".join(f"load_{n}({'i' if n == names[0] else 'at'})" for n in names)
        return gather_map(
            target,
            f"{name}_blocked",
            y,
            [Source(n, o) for n, o in views.items()],
            "let row = i / params.inner;\n"
            "  let at = row / params.axis * params.outer + row % params.axis / params.block * params.inner"
            " + (i - row * params.inner);\n"
            f"  return compute({loads});",
            {"axis": self.shape[1], "inner": self.shape[2], "block": self.block, "outer": outer},
            f"fn compute({arguments}) -> {y.type.dtype.compute} {{ return {expr}; }}",
        )


class ScaledOp(Op):
    """Base of operators with scales."""

    axis: int
    block_size: int

    def layout(self, x: TensorType, scale: TensorType) -> Granularity:
        """Return which elements of `x` share an element of `scale`.

        Raises:
            InvalidGraph: the shapes do not match.
        """
        if self.opsets.stop <= 13 and scale.size != 1:
            self.fail("one scale", list(scale.shape))
        if scale.size == 1 and scale.rank <= 1:
            return Granularity((1, 1, x.size), 1, True)
        axis = 0 if x.rank == 1 else self.axis_of(self.axis, x.rank)
        shape = (math.prod(x.shape[:axis]), x.shape[axis] if x.rank else 1, math.prod(x.shape[axis + 1 :]))
        if scale.rank == 1 and not self.block_size:
            if scale.size != shape[1]:
                self.fail(f"{shape[1]} scales, as dimension {axis} of {list(x.shape)}", scale.size)
            return Granularity(shape, 1, True)
        if self.block_size <= 0:
            self.fail("a scalar scale, one scale per index of the axis, or a positive block_size", list(scale.shape))
        expected = (*x.shape[:axis], -(-shape[1] // self.block_size), *x.shape[axis + 1 :])
        if scale.shape != expected:
            self.fail(f"scales of shape {list(expected)} for blocks of {self.block_size}", list(scale.shape))
        return Granularity(shape, self.block_size, False)


def quantized(code: str, zero: str, to: DType) -> str:
    """Return WGSL that rounds the f32 `code` half to even, adds `zero` and saturates to `to`, an integer type."""
    low, high = RANGES[to]
    return f"{to.compute}(quantize({code}, {zero}, {low}.0, {high}.0))"

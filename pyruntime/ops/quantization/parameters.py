"""Scales and zero points of linear quantization: one for a tensor, for each index of an axis, or for each block."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Operand, Source, Target, elementwise, gather_map
from pyruntime.kernels.ir.indexing import contiguous
from pyruntime.ops.base import Op

__all__ = ["RANGES", "Granularity", "ScaledOp", "quantized"]

RANGES = {dtype: dtype.limits for dtype in DType if dtype.is_integer and dtype.bits <= 16}
"""The integers a quantized type holds."""


@dataclass(frozen=True, slots=True)
class Granularity:
    """Which elements of x share a scale.

    Attributes:
        shape: x as (outer, axis, inner); axis is 1 for one scale per tensor.
        block: elements along the axis that share a scale.
        whole: the scales repeat over outer and inner too (one per axis index, or one in all).
    """

    shape: tuple[int, int, int]
    block: int
    whole: bool

    @property
    def blocks(self) -> int:
        """Scales along the axis."""
        return -(-self.shape[1] // self.block) if self.block else 0

    @property
    def scales(self) -> tuple[int, int, int]:
        """The shape of the scales, against `shape`."""
        return (1, self.blocks, 1) if self.whole else (self.shape[0], self.blocks, self.shape[2])

    def spread(self, values: Array) -> Array:
        """One value for each element of x viewed as `shape`, or an array that broadcasts to that."""
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
        """y = expr(x, scale, ...), where `x` is the first operand and the others are scales or zero points."""
        names = list(operands)

        def viewed(operand: Operand, shape: tuple[int, ...]) -> Operand:
            return Operand(operand.role, operand.index, TensorType(operand.type.dtype, shape), operand.data)

        y = viewed(y, self.shape)
        shapes = dict.fromkeys(names, self.scales) | {names[0]: self.shape}
        views = {n: viewed(o, shapes[n]) for n, o in operands.items()}
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
    """An operator on elements that share scales."""

    axis: int
    block_size: int

    def layout(self, x: TensorType, scale: TensorType) -> Granularity:
        """How `scale` covers `x`. Raises InvalidGraph where it does not."""
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
    """WGSL that rounds the f32 `code` to even, adds `zero` and saturates to the integer type `to`."""
    low, high = RANGES[to]
    return f"{to.compute}(quantize({code}, {zero}, {low}.0, {high}.0))"

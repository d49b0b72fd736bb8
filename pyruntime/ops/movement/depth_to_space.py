"""DepthToSpace and SpaceToDepth: rearrange blocks of channels to blocks of pixels, and vice versa.

Channels are (block row, block column, depth) in mode DCR and (depth, block row, block column) in CRD. Source: ONNX
operators DepthToSpace (1, 11, 13), SpaceToDepth (1, 13, 28).
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Target, inp, out, strided_copy
from pyruntime.kernels.ir.indexing import contiguous
from pyruntime.ops.base import LATEST, Op, op

Shape = tuple[int, ...]


class _Rearranged(Op):
    """Base of DepthToSpace and SpaceToDepth: reshape x [N, C, H, W] to six axes, transpose, and reshape to four."""

    blocksize: int
    mode: Annotated[str, "DCR", "CRD"]

    def split(self, n: int, c: int, h: int, w: int) -> tuple[Shape, Shape, Shape]:
        """Return x's six-axis shape, the permutation, and y's shape. Raises InvalidGraph for indivisible sizes."""
        raise NotImplementedError

    def plan(self, shape: Shape) -> tuple[Shape, Shape, Shape]:
        """Check the shape and attributes, then return `split`."""
        if len(shape) != 4 or self.blocksize < 1:
            self.fail("x [N, C, H, W] and a blocksize of at least 1", f"{list(shape)}, {self}")
        return self.split(*shape)

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        return (x.with_shape(*self.plan(x.shape)[2]),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        parts, order, shape = self.plan(x.shape)
        return (np.transpose(x.reshape(parts), order).reshape(shape),)

    def alias(self, x: TensorType) -> int | None:
        """Return 0 for blocks of one pixel."""
        return 0 if self.blocksize == 1 else None

    def lower(self, target: Target, x: TensorType) -> tuple[Dispatch, ...]:
        parts, order, _ = self.plan(x.shape)
        strides = contiguous(parts)
        y = x.with_shape(*(parts[k] for k in order))
        view = [strides[k] for k in order]
        return (strided_copy(target, "rearrange", out(0, y), inp(0, x), 0, view),)


@op("DepthToSpace", opsets=range(11, LATEST + 1), earlier={range(1, 11): "mode"})
class DepthToSpace(_Rearranged):
    """Channels to pixels."""

    blocksize: int
    mode: Annotated[str, "DCR", "CRD"] = "DCR"

    def split(self, n: int, c: int, h: int, w: int) -> tuple[Shape, Shape, Shape]:
        b = self.blocksize
        if c % (b * b):
            self.fail(f"channels in blocks of {b * b}", c)
        depth = c // (b * b)
        shape = (n, depth, h * b, w * b)
        if self.mode == "DCR":
            return (n, b, b, depth, h, w), (0, 3, 4, 1, 5, 2), shape
        return (n, depth, b, b, h, w), (0, 1, 4, 2, 5, 3), shape


@op("SpaceToDepth", opsets=range(28, LATEST + 1), earlier={range(1, 28): "mode"})
class SpaceToDepth(_Rearranged):
    """Pixels to channels."""

    blocksize: int
    mode: Annotated[str, "DCR", "CRD"] = "DCR"

    def split(self, n: int, c: int, h: int, w: int) -> tuple[Shape, Shape, Shape]:
        b = self.blocksize
        if h % b or w % b:
            self.fail(f"height and width in blocks of {b}", (h, w))
        order = (0, 3, 5, 1, 2, 4) if self.mode == "DCR" else (0, 1, 3, 5, 2, 4)
        return (n, c, h // b, b, w // b, b), order, (n, c * b * b, h // b, w // b)

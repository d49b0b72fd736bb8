"""Tile: y[c] = x[c mod x.shape]. Source: ONNX operator Tile."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Target, inp, out, strided_copy
from pyruntime.kernels.ir.indexing import contiguous
from pyruntime.ops.base import LATEST, Op, op


def tiled(op: Op, x: TensorType, repeats: Sequence[int]) -> TensorType:
    """Return the output type: y.shape[d] = x.shape[d] * repeats[d]. Raises InvalidGraph."""
    if len(repeats) != x.rank or any(r < 0 for r in repeats):
        op.fail(f"{x.rank} repeats of at least 0", list(repeats))
    return x.with_shape(*(d * r for d, r in zip(x.shape, repeats, strict=True)))


def tile_copy(op: Op, target: Target, x: TensorType, repeats: Sequence[int]) -> tuple[Dispatch, ...]:
    """Return the dispatch of a strided copy: dimension d becomes (repeats[d], x.shape[d]), the former with stride 0."""
    y = tiled(op, x, repeats)
    pairs = zip(x.shape, repeats, contiguous(x.shape), strict=True)
    split = [part for dim, times, stride in pairs for part in ((times, 0), (dim, stride))]
    dims, strides = [d for d, _ in split], [s for _, s in split]
    return (strided_copy(target, "tile", out(0, y.with_shape(*dims)), inp(0, x), 0, strides),)


@op("Tile", opsets=range(6, LATEST + 1))
class Tile(Op):
    """x: any shape; repeats: int64 [rank of x]."""

    def infer(self, x: TensorType, repeats: TensorType) -> tuple[TensorType, ...]:
        return (tiled(self, x, repeats.ints()),)

    def evaluate(self, x: Array, repeats: Array) -> tuple[Array, ...]:
        return (np.tile(x, repeats.tolist()),)

    def alias(self, x: TensorType, repeats: TensorType) -> int | None:
        return 0 if self.infer(x, repeats)[0].shape == x.shape else None

    def lower(self, target: Target, x: TensorType, repeats: TensorType) -> tuple[Dispatch, ...]:
        return tile_copy(self, target, x, repeats.ints())


@op("Tile", opsets=range(1, 6))
class TileAxis(Op):
    """x: any shape; tiles, axis: one element each, in x's type."""

    def repeats(self, rank: int, tiles: int, axis: int) -> list[int]:
        """Return the repeats of all dimensions."""
        axis = self.axis_of(axis, rank)
        return [tiles if d == axis else 1 for d in range(rank)]

    def infer(self, x: TensorType, tiles: TensorType, axis: TensorType) -> tuple[TensorType, ...]:
        return (tiled(self, x, self.repeats(x.rank, *tiles.ints(), *axis.ints())),)

    def evaluate(self, x: Array, tiles: Array, axis: Array) -> tuple[Array, ...]:
        return (np.tile(x, self.repeats(x.ndim, int(tiles.reshape(())), int(axis.reshape(())))),)

    def alias(self, x: TensorType, tiles: TensorType, axis: TensorType) -> int | None:
        return 0 if tiles.ints() == (1,) else None

    def lower(self, target: Target, x: TensorType, tiles: TensorType, axis: TensorType) -> tuple[Dispatch, ...]:
        return tile_copy(self, target, x, self.repeats(x.rank, *tiles.ints(), *axis.ints()))

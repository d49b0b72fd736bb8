"""Transpose: y[c] = x[c permuted]. Source: ONNX operator Transpose."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from pyruntime.ir import Array, TensorType, multiple, upper
from pyruntime.kernels import Dispatch, Operand, Target, bits_type, inp, launch, out, strided_copy
from pyruntime.kernels.ir.indexing import collapse, contiguous
from pyruntime.ops.base import LATEST, Op, op

TILE = 32
TILED_THREADS = 256
WORTH_TILING = 16
"""Smallest extent of both dimensions for tiling. Below it, strided reads of neighboring invocations share cache lines.
"""


@lru_cache(maxsize=512)
def _permutation(perm: tuple[int, ...] | None, rank: int) -> tuple[int, ...] | None:
    """Return `perm` with non-negative axes, by default the reversal; None if it is not a permutation."""
    if perm is None:
        return tuple(range(rank))[::-1]
    axes = tuple(p % rank for p in perm if -rank <= p < rank)
    return axes if len(axes) == len(perm) and sorted(axes) == list(range(rank)) else None


@op("Transpose", opsets=range(1, LATEST + 1))
class Transpose(Op):
    """y.shape[d] = x.shape[perm[d]]; default: reversed dimensions. Any type."""

    perm: tuple[int, ...] | None = None

    def permutation(self, rank: int) -> tuple[int, ...]:
        """Return `perm`, by default the reversal. Raises InvalidGraph if it is not a permutation of the axes."""
        found = _permutation(self.perm, rank)
        if found is None:
            self.fail(f"perm to be a permutation of {list(range(rank))}", list(self.perm or ()))
        return found

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        return (x.with_shape(*(x.shape[p] for p in self.permutation(x.rank))),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (np.transpose(x, self.permutation(x.ndim)),)

    def alias(self, x: TensorType) -> int | None:
        """Return 0 where only axes of size 1 move."""
        order = [p for p in self.permutation(x.rank) if x.shape[p] != 1]
        return 0 if order == sorted(order) or not x.size else None

    def lower(self, target: Target, x: TensorType) -> tuple[Dispatch, ...]:
        (y,) = self.infer(x)
        strides = contiguous(x.shape)
        view = [strides[p] for p in self.permutation(x.rank)]
        # On software adapters, barriers take a second to compile and are slower than strided reads.
        allowed = target.allows("transpose_tiled") and not target.is_processor
        tiled = tiled_transpose(target, out(0, y), inp(0, x), view) if allowed else None
        return (tiled or strided_copy(target, "transpose", out(0, y), inp(0, x), 0, view),)


def tiled_transpose(target: Target, y: Operand, x: Operand, strides: list[int]) -> Dispatch | None:
    """Return the dispatch that swaps two long dimensions in workgroup tiles, or None if there is no such pair."""
    if target.widest(TILED_THREADS) < TILED_THREADS:
        return None
    bits = bits_type(y.type.dtype)
    dims, (view,) = collapse(y.type.shape, strides)
    if 1 not in view or view[-1] == 1 or len(dims) > 4 or bits.bits < 8:
        return None
    rows, across = dims[-1], view.index(1)
    columns = dims[across]
    vector = multiple(rows, 4) and bits.bits <= 32
    if min(upper(rows), upper(columns)) < WORTH_TILING or not (vector or bits.bits >= 32):
        return None
    own = contiguous(dims)
    planes = [d for d in range(len(dims) - 1) if d != across]
    x_plane, y_plane = ([0, 0, *(steps[d] for d in planes)][-2:] for steps in (view, own))
    tiles_r, tiles_c = -(-rows // TILE), -(-columns // TILE)
    tiles = tiles_r * tiles_c * math.prod(dims[d] for d in planes)
    values = {
        "tiles": tiles,
        "tiles_r": tiles_r,
        "tiles_c": tiles_c,
        "rows": rows,
        "columns": columns,
        "planes_1": dims[planes[-1]] if planes else 1,
        "x_row": view[-1],
        "y_row": own[across],
        "x_plane_0": x_plane[0],
        "x_plane_1": x_plane[1],
        "y_plane_0": y_plane[0],
        "y_plane_1": y_plane[1],
    }
    tensors = {n: Operand(o.role, o.index, TensorType(bits, o.type.shape), o.data) for n, o in (("x", x), ("y", y))}
    return launch("transpose_tiled", tensors, target.fold(tiles), {"VECTOR": int(vector), "TILE": TILE}, values)

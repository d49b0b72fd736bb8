"""AppendHeads: y = concat(past, x) along the rows of heads, x a strided view. Made by passes, not by models."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Target, inp, out
from pyruntime.kernels.attention_append import Append, Lengths, append
from pyruntime.kernels.attention_form import HeadView
from pyruntime.ops.base import Unsupported, attributes_of, op
from pyruntime.ops.caches import CacheOp

__all__ = ["AppendHeads"]


@op("AppendHeads", opsets=range(1, 2), domain="pyruntime")
class AppendHeads(CacheOp):
    """past: [B, H, P, D]; x: a tensor of which `view` is [B, H, N, D], `rows` N. y: [B, H, P + N, D]."""

    rows: int
    view: HeadView

    def infer(self, past: TensorType, x: TensorType) -> tuple[TensorType, ...]:
        if past.rank != 4:
            self.fail("a past of rank 4", past)
        batch, heads, before, size = past.shape
        return (TensorType(self.same_dtype(past, x), (batch, heads, before + self.rows, size)),)

    def evaluate(self, past: Array, x: Array) -> tuple[Array, ...]:
        shape = (*past.shape[:2], self.rows, past.shape[3])
        return (np.concatenate((past, self.view.array(x, shape)), axis=2),)

    def appends(self, past: TensorType, x: TensorType) -> dict[int, tuple[int, int]]:
        moved = x.dtype.is_float and not x.dtype.is_wide
        return {0: (0, 2)} if moved and past.shape[3] % 4 == 0 else {}

    def in_room(self, past: TensorType, x: TensorType) -> _InRoom:
        return _InRoom(**attributes_of(self), past_rows=past.shape[2])

    def lower(self, target: Target, past: TensorType, x: TensorType) -> tuple[Dispatch, ...]:
        if not x.dtype.is_float or x.dtype.is_wide:
            raise Unsupported("rows of other types than float, float16 and bfloat16 are moved by Concat")
        (y,) = self.infer(past, x)
        placed = Append(placed=True, past=inp(0, past), lengths=Lengths(first=past.shape[2]))
        return append(target, out(0, y), inp(1, x), self.view, self.rows, past.shape[3], placed)


@op("AppendHeadsInRoom", opsets=range(1, 2), domain="pyruntime")
class _InRoom(AppendHeads):
    """past: [B, H, C, D], memory with room, of which `past_rows` count; y is that memory, with the new rows."""

    past_rows: Any

    @property
    def overwrites(self) -> dict[int, int]:
        return {0: 0}

    def infer(self, past: TensorType, x: TensorType) -> tuple[TensorType, ...]:
        return (TensorType(self.same_dtype(past, x), past.shape),)

    def evaluate(self, past: Array, x: Array) -> tuple[Array, ...]:
        y, first = past.copy(), int(self.past_rows)
        y[:, :, first : first + self.rows] = self.view.array(x, (*past.shape[:2], self.rows, past.shape[3]))
        return (y,)

    def lower(self, target: Target, past: TensorType, x: TensorType) -> tuple[Dispatch, ...]:
        into = Append(placed=True, lengths=Lengths(first=self.past_rows), into=True)
        return append(target, out(0, past), inp(1, x), self.view, self.rows, past.shape[3], into)

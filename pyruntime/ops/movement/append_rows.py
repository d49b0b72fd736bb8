"""AppendRows and FirstRows: a tensor that grows along an axis in memory with room for more. Made by passes alone.

The memory is a tensor [..., C, ...] whose first rows along the axis count. Concat(past, new) is then AppendRows, which
writes the new rows and nothing else, and FirstRows of what came out of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Target, Unit, for_each, inp, move, out
from pyruntime.ops.base import Op, op
from pyruntime.ops.caches import CacheOp

__all__ = ["AppendRows", "FirstRows", "counted", "divides_into_words"]


def divides_into_words(kind: TensorType, axis: int) -> bool:
    """True where rows behind `axis` are whole words: appending then changes no other row's."""
    return Unit.widest(kind.dtype, math.prod(kind.shape[axis + 1 :])).is_words


def counted(inputs: Sequence[Any], caches: Sequence[int], rows: Any) -> list[Any]:
    """Input types with the caches [B, H, C, D] among them as they would be without room: of `rows` that count."""
    made = list(inputs)
    for i in caches:
        batch, heads, _, size = made[i].shape
        made[i] = made[i].with_shape(batch, heads, rows, size)
    return made


@op("AppendRows", opsets=range(1, 2), domain="pyruntime")
class AppendRows(CacheOp):
    """room: [..., C, ...], new: [..., n, ...]; the output is the memory of `room` with new rows [first, first + n)."""

    axis: int
    first: Any

    @property
    def overwrites(self) -> dict[int, int]:
        return {0: 0}

    def infer(self, room: TensorType, new: TensorType) -> tuple[TensorType, ...]:
        self.same_dtype(room, new)
        return (TensorType(room.dtype, room.shape),)

    def evaluate(self, room: Array, new: Array) -> tuple[Array, ...]:
        y = room.copy()
        first = int(self.first)
        np.moveaxis(y, self.axis, 0)[first : first + new.shape[self.axis]] = np.moveaxis(new, self.axis, 0)
        return (y,)

    def lower(self, target: Target, room: TensorType, new: TensorType) -> tuple[Dispatch, ...]:
        inner = math.prod(new.shape[self.axis + 1 :])
        unit = Unit.widest(new.dtype, inner)
        run = inner // unit.width
        values = {"block": new.shape[self.axis] * run, "step": room.shape[self.axis] * run, "first": self.first * run}
        place = "(i / params.block) * params.step + params.first + i % params.block"
        kernel = for_each(
            target,
            f"append_rows_{unit.bits}",
            new.size // unit.width,
            {"x": unit.view(inp(1, new))},
            {"y": unit.view(out(0, room))},
            f"let v = {unit.load}_x(i);\n  {unit.store('y', place, 'v')}",
            values,
        )
        return (kernel,)


@op("FirstRows", opsets=range(1, 2), domain="pyruntime")
class FirstRows(Op):
    """y := the first `rows` along the axis of room."""

    axis: int
    rows: Any

    def infer(self, room: TensorType) -> tuple[TensorType, ...]:
        return (room.with_shape(*room.shape[: self.axis], self.rows, *room.shape[self.axis + 1 :]),)

    def evaluate(self, room: Array) -> tuple[Array, ...]:
        return (room[(slice(None),) * self.axis + (slice(int(self.rows)),)],)

    def alias(self, room: TensorType) -> int | None:
        """What has no axis in front is a piece of memory."""
        return 0 if math.prod(room.shape[: self.axis]) == 1 else None

    def lower(self, target: Target, room: TensorType) -> tuple[Dispatch, ...]:
        (y,) = self.infer(room)
        inner = math.prod(room.shape[self.axis + 1 :])
        unit = Unit.widest(room.dtype, inner)
        run = inner // unit.width
        values = {"block": y.shape[self.axis] * run, "step": room.shape[self.axis] * run}
        element = f"return {unit.load}_x((i / params.block) * params.step + i % params.block);"
        return (move(target, "first_rows", unit, out(0, y), {"x": inp(0, room)}, element, values),)

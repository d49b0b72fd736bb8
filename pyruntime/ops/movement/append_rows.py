"""AppendRows and FirstRows: append rows to a tensor in place, in memory with unused capacity.

The memory is a tensor [..., C, ...] whose first rows along the axis are valid. Concat(past, new) becomes AppendRows,
which stores only the new rows, and FirstRows of its output. `passes/decoding/grow_in_place.py` creates them from the
Concat of a resident cache.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Target, Unit, for_each, inp, move, out
from pyruntime.ops.base import Op, attributes, op
from pyruntime.ops.caches import CacheOp
from pyruntime.ops.operands import index_of

__all__ = ["AppendRows", "AppendsToCaches", "FirstRows", "divides_into_words"]


def divides_into_words(kind: TensorType, axis: int) -> bool:
    """Whether a row along `axis` is whole 32-bit words, so that a store to it does not touch other rows."""
    return Unit.widest(kind.dtype, math.prod(kind.shape[axis + 1 :])).is_words


@attributes
class AppendsToCaches(CacheOp):
    """Mixin of attentions that append in place to past_key and past_value [B, H, C, D], with capacity C.

    Attributes:
        past_rows: number of valid rows before appending.
    """

    past_rows: Any

    @classmethod
    def _caches(cls) -> tuple[int, int]:
        return index_of(cls.operands, "past_key"), index_of(cls.operands, "past_value")

    @property
    def overwrites(self) -> dict[int, int]:
        return dict(enumerate(self._caches(), 1))

    def _valid(self, inputs: Sequence[Any]) -> list[Any]:
        """Return the input types, with caches of `past_rows` rows instead of their capacity."""
        made = list(inputs)
        for i in self._caches():
            batch, heads, _, size = made[i].shape
            made[i] = made[i].with_shape(batch, heads, self.past_rows, size)
        return made

    def sizes(self, *inputs: Any) -> Any:
        """Return the sizes of the attention over the valid rows."""
        return super().sizes(*self._valid(inputs))  # type: ignore[misc]

    def infer(self, *inputs: Any) -> tuple[Any, ...]:
        y, _, _, *others = super().infer(*self._valid(inputs))
        return (y, *(inputs[i] for i in self._caches()), *others)


@op("AppendRows", opsets=range(1, 2), domain="pyruntime")
class AppendRows(CacheOp):
    """memory: [..., C, ...], new: [..., n, ...]; the output is `memory` with `new` in rows [first, first + n)."""

    axis: int
    first: Any

    @property
    def overwrites(self) -> dict[int, int]:
        return {0: 0}

    def infer(self, memory: TensorType, new: TensorType) -> tuple[TensorType, ...]:
        self.same_dtype(memory, new)
        return (TensorType(memory.dtype, memory.shape),)

    def evaluate(self, memory: Array, new: Array) -> tuple[Array, ...]:
        y = memory.copy()
        first = int(self.first)
        np.moveaxis(y, self.axis, 0)[first : first + new.shape[self.axis]] = np.moveaxis(new, self.axis, 0)
        return (y,)

    def lower(self, target: Target, memory: TensorType, new: TensorType) -> tuple[Dispatch, ...]:
        inner = math.prod(new.shape[self.axis + 1 :])
        unit = Unit.widest(new.dtype, inner)
        run = inner // unit.width
        values = {"block": new.shape[self.axis] * run, "step": memory.shape[self.axis] * run, "first": self.first * run}
        place = "(i / params.block) * params.step + params.first + i % params.block"
        kernel = for_each(
            target,
            f"append_rows_{unit.bits}",
            new.size // unit.width,
            {"x": unit.view(inp(1, new))},
            {"y": unit.view(out(0, memory))},
            f"let v = {unit.load}_x(i);\n  {unit.store('y', place, 'v')}",
            values,
        )
        return (kernel,)


@op("FirstRows", opsets=range(1, 2), domain="pyruntime")
class FirstRows(Op):
    """y: the first `rows` rows of `memory` along `axis`."""

    axis: int
    rows: Any

    def infer(self, memory: TensorType) -> tuple[TensorType, ...]:
        return (memory.with_shape(*memory.shape[: self.axis], self.rows, *memory.shape[self.axis + 1 :]),)

    def evaluate(self, memory: Array) -> tuple[Array, ...]:
        return (memory[(slice(None),) * self.axis + (slice(int(self.rows)),)],)

    def alias(self, memory: TensorType) -> int | None:
        """Return 0 where the rows are contiguous: all axes before theirs have size 1."""
        return 0 if math.prod(memory.shape[: self.axis]) == 1 else None

    def lower(self, target: Target, memory: TensorType) -> tuple[Dispatch, ...]:
        (y,) = self.infer(memory)
        inner = math.prod(memory.shape[self.axis + 1 :])
        unit = Unit.widest(memory.dtype, inner)
        run = inner // unit.width
        values = {"block": y.shape[self.axis] * run, "step": memory.shape[self.axis] * run}
        element = f"return {unit.load}_x((i / params.block) * params.step + i % params.block);"
        return (move(target, "first_rows", unit, out(0, y), {"x": inp(0, memory)}, element, values),)

"""Concat: concatenate tensors along an axis. Source: ONNX operator Concat.

Flattened at the axis, each input is a matrix [outer, width], and a row of the output is the concatenation of the
inputs' rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Operand, Target, Unit, for_each, inp, move, out, scratch
from pyruntime.ops.base import LATEST, op
from pyruntime.ops.caches import CacheOp
from pyruntime.ops.movement.append_rows import AppendRows, divides_into_words


def select(unit: Unit, count: int) -> str:
    """Return WGSL that loads unit `col` of row `row` of the concatenation of `count` inputs x0, x1, ..."""
    lines = ["let row = i / params.width;", "let col = i - row * params.width;"]
    for k in range(count):
        start = f"params.ends_{(k - 1) // 4}[{(k - 1) % 4}]" if k else "0u"
        end = f"params.ends_{k // 4}[{k % 4}]"
        load = f"return {unit.load}_x{k}(row * ({end} - {start}) + col - {start});"
        lines.append(f"if (col < {end}) {{ {load} }}" if k < count - 1 else load)
    return "\n  ".join(lines)


def join(target: Target, y: Operand, inputs: Sequence[Operand], outer: int) -> list[Dispatch]:
    """Return dispatches that concatenate the rows of `inputs`, [outer, any width] each, into y.

    If there are more inputs than the device can bind, chunks of them are written to their columns of y, or to scratch
    memory first if elements of different chunks would share a 32-bit word.
    """
    widths = [o.type.size // outer for o in inputs]
    unit = Unit.widest(y.type.dtype, *widths)
    most = target.limits.storage_buffers - 1
    if len(inputs) <= most:
        return [_join_chunk(target, unit, y, inputs, widths, 0, sum(widths))]
    made: list[Dispatch] = []
    parts: list[Operand] = []
    offsets = [0, *accumulate(widths)]
    for k in range(0, len(inputs), most):
        chunk, own = inputs[k : k + most], widths[k : k + most]
        if unit.is_words:
            made.append(_join_chunk(target, unit, y, chunk, own, offsets[k], sum(widths)))
        else:
            parts.append(scratch(y.type.dtype, outer, sum(own)))
            made.append(_join_chunk(target, unit, parts[-1], chunk, own, 0, sum(own)))
    return made + join(target, y, parts, outer) if parts else made


def _join_chunk(
    target: Target, unit: Unit, y: Operand, inputs: Sequence[Operand], widths: Sequence[int], offset: int, total: int
) -> Dispatch:
    """Return the dispatch that writes columns [offset, offset + sum(widths)) of y's `total`; in elements."""
    ends = [end // unit.width for end in accumulate(widths)]
    words = -(-len(ends) // 4)
    values: dict[str, int | list[int]] = {f"ends_{k}": ends[4 * k : 4 * k + 4] for k in range(words)}
    values["width"] = ends[-1]
    name, element = f"concat{len(inputs)}", select(unit, len(inputs))
    sources = {f"x{k}": o for k, o in enumerate(inputs)}
    if sum(widths) == total:
        return move(target, name, unit, y, sources, element, values)
    count = y.type.size // total * ends[-1]
    values |= {"row": total // unit.width, "offset": offset // unit.width}
    place = "(i / params.width) * params.row + params.offset + i % params.width"
    return for_each(
        target,
        f"{name}_part_{unit.bits}",
        count,
        {n: unit.view(o) for n, o in sources.items()},
        {"y": unit.view(y)},
        f"let v = element(i);\n  {unit.store('y', place, 'v')}",
        values,
        f"fn element(i: u32) -> {unit.value} {{\n  {element}\n}}",
    )


class _Concat(CacheOp):
    """Base of all Concat versions."""

    axis: int | None

    def along(self, rank: int) -> int:
        """Return the axis as a non-negative index."""
        return self.axis_of(1 if self.axis is None else self.axis, rank)

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        if not inputs:
            self.fail("at least one input", "none")
        first = inputs[0]
        self.same_dtype(*inputs)
        if first.rank == 0:
            self.fail("inputs of rank 1 or more", first)
        axis = self.along(first.rank)
        around = first.shape[:axis], first.shape[axis + 1 :]
        for x in inputs:
            if x.rank != first.rank or (x.shape[:axis], x.shape[axis + 1 :]) != around:
                self.fail(f"shapes that differ along axis {axis} alone", f"{first} and {x}")
        return (first.with_shape(*around[0], sum(x.shape[axis] for x in inputs), *around[1]),)

    def evaluate(self, *inputs: Array) -> tuple[Array, ...]:
        return (np.concatenate(inputs, axis=self.along(inputs[0].ndim)),)

    def alias(self, *inputs: TensorType) -> int | None:
        """Return the only input with elements, if the others are empty."""
        full = [k for k, x in enumerate(inputs) if x.size]
        return full[0] if len(full) == 1 else None

    def appends(self, *inputs: TensorType) -> dict[int, tuple[int, int]]:
        axis = self.along(inputs[0].rank)
        return {0: (0, axis)} if len(inputs) == 2 and divides_into_words(inputs[0], axis) else {}

    def append_in_place(self, *inputs: TensorType) -> AppendRows:
        axis = self.along(inputs[0].rank)
        return AppendRows(axis=axis, first=inputs[0].shape[axis])

    def lower(self, target: Target, *inputs: TensorType) -> tuple[Dispatch, ...]:
        (y,) = self.infer(*inputs)
        outer = math.prod(y.shape[: self.along(y.rank)])
        full = [inp(k, x) for k, x in enumerate(inputs) if x.size]
        return tuple(join(target, out(0, y), full, outer)) if full else ()


@op("Concat", opsets=range(4, LATEST + 1))
class Concat(_Concat):
    """inputs: equal shapes except for the axis, of any type."""

    axis: int


@op("Concat", opsets=range(1, 4))
class ConcatChannels(_Concat):
    """inputs: equal shapes except for the axis, by default axis 1."""

    axis: int | None = None

"""Kernels of a loop: slices of what it reads, rows of what it makes, by the number of the iteration in GPU memory.

All iterations are the same dispatches on the same memory, so a loop is recorded once, however many trips it has.
"""

from __future__ import annotations

from typing import Any

from pyruntime.ir import DType, TensorType
from pyruntime.kernels.ir.dispatch import Dispatch, Operand
from pyruntime.kernels.map import for_each
from pyruntime.kernels.movement import Unit, fill, move
from pyruntime.kernels.wgsl.storage import lanes
from pyruntime.target import Target

__all__ = ["count_up", "padded_row", "read_row", "write_row", "zeros"]


def zeros(target: Target, y: Operand) -> Dispatch:
    """y = 0."""
    return fill(target, "zeros", y, bytes(16))


def count_up(target: Target, counter: Operand) -> Dispatch:
    """counter += 1; its upper word stays 0."""
    return for_each(target, "count_up", 1, {}, {"c": _low(counter)}, "store_c(0u, load_c(0u) + 1u);")


def read_row(target: Target, y: Operand, x: Operand, counter: Operand, is_backward: bool) -> Dispatch:
    """y = x[counter]; the last row first where `is_backward`."""
    unit = Unit.widest(y.type.dtype, y.type.size)
    at, values = _row(x, is_backward)
    values["row"] = y.type.size // unit.width
    element = f"return {unit.load}_x({at} * params.row + i);"
    return move(target, "read_row", unit, y, {"x": x}, element, values, {"counter": _low(counter)})


def padded_row(row: TensorType) -> int:
    """Elements of a row of whole words, which `write_row` writes."""
    return -(-row.size // lanes(row.dtype)) * lanes(row.dtype)


def write_row(target: Target, y: Operand, x: Operand, counter: Operand, is_backward: bool) -> Dispatch:
    """Return the dispatch of y[counter] = x, or of y[last - counter] = x if `is_backward`.

    y: rows of `padded_row` elements.
    """
    size = padded_row(x.type)
    unit = Unit.widest(x.type.dtype, size)
    at, values = _row(y, is_backward)
    count = values["row"] = size // unit.width
    statements = f"let v = {unit.load}_x(i);\n  {unit.store('y', f'{at} * params.row + i', 'v')}"
    reads = {"x": unit.view(x), "counter": _low(counter)}
    return for_each(target, f"write_row_{unit.bits}", count, reads, {"y": unit.view(y)}, statements, values)


def _row(stack: Operand, is_backward: bool) -> tuple[str, dict[str, Any]]:
    """WGSL for the number of the row, and the uniforms that it takes."""
    counter = "load_counter(0u)"
    return (f"(params.last - {counter})", {"last": stack.type.shape[0] - 1}) if is_backward else (counter, {})


def _low(counter: Operand) -> Operand:
    """The low word of an int64."""
    return Operand(counter.role, counter.index, TensorType(DType.UINT32, (1,)), counter.data)

"""Pad: add elements at, or remove them from, both ends of dimensions. Source: ONNX operator Pad.

Negative pads remove elements first. Added elements are a constant, the border element (edge), the mirror image without
the border (reflect), or the elements of the other end (wrap). The last three repeat where a pad exceeds the tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyruntime.ir import Array, TensorType, are_open
from pyruntime.ir.encoding import encode
from pyruntime.kernels import Dispatch, Operand, Target, Unit, inp, move, out
from pyruntime.kernels.ir.indexing import contiguous
from pyruntime.ops.base import LATEST, Op, attributes, op
from pyruntime.ops.operands import named

MODES = ("constant", "reflect", "edge", "wrap")


@dataclass(frozen=True, slots=True)
class Side:
    """Padding of a dimension from `dim` to `size` elements: `kept` elements from `skip` on are stored at `before`."""

    dim: int
    size: int
    before: int
    kept: int
    skip: int

    @staticmethod
    def of(dim: int, begin: int, end: int) -> Side:
        """Return the padding that adds `begin` and `end` elements to `dim`, or removes them where negative."""
        kept = max(0, dim + min(0, begin) + min(0, end))
        return Side(dim, dim + begin + end, max(0, begin), kept, max(0, -begin))

    @property
    def is_whole(self) -> bool:
        """Whether nothing is added or removed."""
        return self.size == self.kept == self.dim

    def times(self, inner: int) -> Side:
        """Return this padding for the dimension merged with a following unpadded one of `inner` elements."""
        return Side(*(n * inner for n in (self.dim, self.size, self.before, self.kept, self.skip)))

    def sources(self, mode: str) -> Array:
        """Return the input index of each output element, for modes other than constant."""
        at, n = np.arange(self.size) - self.before, self.kept
        if mode == "edge":
            at = np.clip(at, 0, n - 1)
        elif mode == "wrap":
            at = at % max(1, n)
        else:
            at = n - 1 - np.abs(n - 1 - at % max(1, 2 * n - 2))
        return at + self.skip


def sides_of(op: Op, shape: tuple[int, ...], pads: Sequence[int], axes: Sequence[int] | None, mode: str) -> list[Side]:
    """Return the padding of each axis. If an axis is named twice, the last pads count.

    Raises:
        InvalidGraph: pads and axes do not match, or there are no elements to repeat.
    """
    if mode not in MODES:
        op.fail(f"a mode of {', '.join(MODES)}", mode)
    axes = range(len(shape)) if axes is None else [op.axis_of(axis, len(shape)) for axis in axes]
    if len(pads) != 2 * len(axes):
        op.fail("a begin and an end for each of the axes", f"pads {list(pads)}, axes {list(axes)}")
    ends = {axis: (pads[k], pads[k + len(axes)]) for k, axis in enumerate(axes)}
    sides = [Side.of(dim, *ends.get(axis, (0, 0))) for axis, dim in enumerate(shape)]
    if any(side.size < 0 for side in sides):
        op.fail(f"pads that leave at least 0 elements of {list(shape)}", list(pads))
    if mode != "constant" and any(side.kept == 0 < side.size for side in sides):
        op.fail(f"elements to repeat in mode {mode}", f"pads {list(pads)} of {list(shape)}")
    return sides


def pad_array(x: Array, sides: Sequence[Side], mode: str, value: Array | None) -> Array:
    """Return the padded array. The default value is zero, or the empty string."""
    if mode != "constant":
        return x[np.ix_(*(side.sources(mode) for side in sides))] if sides else x
    empty: Array = (
        np.array("" if x.dtype == object and not are_open(x) else 0, x.dtype) if value is None else value.reshape(())
    )
    y = np.full([side.size for side in sides], empty, x.dtype)
    if all(side.kept for side in sides):
        inside = tuple(slice(side.before, side.before + side.kept) for side in sides)
        y[inside] = x[tuple(slice(side.skip, side.skip + side.kept) for side in sides)]
    return y


def merged(sides: Sequence[Side], mode: str) -> list[Side]:
    """Merge unpadded sides into the previous side where that gives the same result."""
    made: list[Side] = []
    for side in sides:
        if made and side.is_whole and (made[-1].is_whole or mode in ("constant", "wrap")):
            made[-1] = made[-1].times(side.dim)
        else:
            made.append(side)
    return made or [Side.of(1, 0, 0)]


_PLACE = {
    "constant": "inside = inside && c{d} < {side}.z;",
    "edge": "c{d} = u32(clamp(i32(c{d}), 0, i32({side}.z) - 1));",
    "wrap": "c{d} = positive_mod(i32(c{d}), i32({side}.z));",
    "reflect": "c{d} = mirrored(i32(c{d}), i32({side}.z));",
}


def pad_copy(
    target: Target, y: Operand, x: Operand, sides: Sequence[Side], mode: str, value: Operand | bytes
) -> Dispatch:
    """Return the dispatch that writes y. `value` is a tensor of one element, or 16 bytes of the repeated element."""
    dtype, sides = x.type.dtype, merged(sides, mode)
    last = sides[-1]
    runs = (last.dim, last.size, last.before, last.kept, last.skip)
    unit = Unit.widest(dtype, *runs) if last.is_whole or mode in ("constant", "wrap") else Unit(1, dtype.bits)
    sides[-1] = Side(*(n // unit.width for n in runs))
    strides = contiguous([side.dim for side in sides])
    lines = ["var rest = i;", "var at = params.base;", "var inside = true;"]
    for d in range(len(sides) - 1, -1, -1):
        side = f"params.sides[{d}]"
        lines.append(f"let q{d} = rest / {side}.x;")
        lines.append(f"var c{d} = rest - q{d} * {side}.x - {side}.y;")
        lines.append(_PLACE[mode].format(d=d, side=side))
        lines.append(f"at += c{d} * {side}.w;")
        lines.append(f"rest = q{d};")
    packed = [n for s, stride in zip(sides, strides, strict=True) for n in (s.size, s.before, s.kept, stride)]
    base = sum(side.skip * stride for side, stride in zip(sides, strides, strict=True))
    values: dict[str, int | list[int]] = {"base": base, "sides": packed}
    others = {}
    if mode == "constant":
        if isinstance(value, bytes):
            values["pattern"] = [int.from_bytes(value[k : k + 4], "little") for k in range(0, 16, 4)]
            constant = {128: "params.pattern", 64: "params.pattern.xy"}.get(unit.bits, "params.pattern.x")
        else:
            others = {"value": Unit(1, dtype.bits).view(value)}
            constant = unit.splat("load_value(0u)")
        lines.append(f"if (!inside) {{ return {constant}; }}")
    lines.append(f"return {unit.load}_x(at);")
    kinds = {"sides": f"array<vec4<u32>, {len(sides)}>"}
    name = f"pad_{mode}_r{len(sides)}{'_value' if others else ''}"
    return move(target, name, unit, y, {"x": x}, "\n  ".join(lines), values, others, kinds=kinds)


class _Pad(Op):
    """Base of all Pad versions."""

    mode: str

    def made(self, x: TensorType, sides: Sequence[Side]) -> TensorType:
        """Return the output type."""
        return x.with_shape(*(side.size for side in sides))


@op("Pad", opsets=range(11, LATEST + 1))
class Pad(_Pad):
    """x: any shape; pads: int64 [2n], begins then ends; value: one element of x's type; axes: int32 or int64 [n]."""

    operands = named("x pads", optional="value axes")

    mode: str = "constant"

    def sides(self, x: TensorType, pads: TensorType, axes: TensorType | None) -> list[Side]:
        """Return the padding of each axis of x."""
        return sides_of(self, x.shape, pads.ints(), None if axes is None else axes.ints(), self.mode)

    def infer(self, *inputs: Any) -> tuple[TensorType, ...]:
        x, pads, value, axes = self.operands(*inputs)
        self.same_dtype(x, value)
        if value is not None and value.size != 1:
            self.fail("a constant_value of one element", value)
        return (self.made(x, self.sides(x, pads, axes)),)

    def evaluate(self, *inputs: Any) -> tuple[Array, ...]:
        x, pads, value, axes = self.operands(*inputs)
        along = None if axes is None else axes.reshape(-1).tolist()
        return (pad_array(x, sides_of(self, x.shape, pads.reshape(-1).tolist(), along, self.mode), self.mode, value),)

    def alias(self, *inputs: Any) -> int | None:
        x, pads, _, axes = self.operands(*inputs)
        return 0 if all(side.is_whole for side in self.sides(x, pads, axes)) else None

    def lower(self, target: Target, *inputs: Any) -> tuple[Dispatch, ...]:
        x, pads, value, axes = self.operands(*inputs)
        sides = self.sides(x, pads, axes)
        constant = bytes(16) if value is None else inp(2, value)
        return (pad_copy(target, out(0, self.made(x, sides)), inp(0, x), sides, self.mode, constant),)


@attributes
class _PadByAttribute(_Pad):
    """Pad with pads and value as attributes."""

    mode: str = "constant"
    value: float = 0.0

    def pads_attribute(self) -> tuple[int, ...]:
        """Return the pads, begins before ends."""
        raise NotImplementedError

    def sides(self, x: TensorType) -> list[Side]:
        """Return the padding of each axis of x."""
        return sides_of(self, x.shape, self.pads_attribute(), None, self.mode)

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        return (self.made(x, self.sides(x)),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        sides = sides_of(self, x.shape, self.pads_attribute(), None, self.mode)
        return (pad_array(x, sides, self.mode, np.array(self.value, x.dtype)),)

    def alias(self, x: TensorType) -> int | None:
        return 0 if all(side.is_whole for side in self.sides(x)) else None

    def lower(self, target: Target, x: TensorType) -> tuple[Dispatch, ...]:
        sides, count = self.sides(x), 128 // x.dtype.bits
        pattern = encode(np.full(count, self.value, x.dtype.numpy), x.dtype).tobytes()
        return (pad_copy(target, out(0, self.made(x, sides)), inp(0, x), sides, self.mode, pattern),)


@op("Pad", opsets=range(2, 11))
class PadByAttribute(_PadByAttribute):
    """x: rank r; pads: 2r numbers, begins then ends."""

    pads: tuple[int, ...]

    def pads_attribute(self) -> tuple[int, ...]:
        return self.pads


@op("Pad", opsets=range(1, 2))
class PadByPaddings(_PadByAttribute):
    """x: rank r; paddings: 2r numbers, begins then ends."""

    paddings: tuple[int, ...]

    def pads_attribute(self) -> tuple[int, ...]:
        return self.paddings

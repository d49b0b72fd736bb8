"""RolledTranspose: a roll, a transpose and another roll in one kernel, as in shifted-window attention.

    y = roll(reshape(transpose(reshape(roll(x, before), middle), perm), shape), after)

roll(x, n)[i] = x[(i + n) mod size] in each dimension. `passes/layout/fuse_roll.py` creates it. Source: Liu et al., 2021
(Swin).
"""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Source, Target, gather_map, inp, out
from pyruntime.kernels.ir.indexing import contiguous
from pyruntime.ops.base import Op, Unsupported, op

__all__ = ["RolledTranspose"]


@op("RolledTranspose", opsets=range(1, 2), domain="pyruntime")
class RolledTranspose(Op):
    """Roll, reshape, transpose, reshape and roll.

    Attributes:
        before: shift for each dimension of x, 0 <= n < size.
        middle, perm: shape and permutation of the transpose.
        shape: shape of y.
        after: shift for each dimension of `shape`.
    """

    before: tuple[int, ...]
    middle: tuple[int, ...]
    perm: tuple[int, ...]
    shape: tuple[int, ...]
    after: tuple[int, ...]

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        if x.rank != len(self.before):
            self.fail(f"an input of rank {len(self.before)}", x)
        return (TensorType(x.dtype, self.shape),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        rolled = np.roll(x, [-n for n in self.before], tuple(range(x.ndim)))
        moved = rolled.reshape(self.middle).transpose(self.perm).reshape(self.shape)
        return (np.roll(moved, [-n for n in self.after], tuple(range(moved.ndim))),)

    def lower(self, target: Target, x: TensorType) -> tuple[Dispatch, ...]:
        if x.dtype.is_wide or not x.dtype.compute:
            raise Unsupported(f"{x.dtype.onnx_name} is moved on the host")
        turned = tuple(self.middle[p] for p in self.perm)
        steps = contiguous(self.middle)
        values: dict[str, int] = {}
        lines = ["var at = i;"]
        lines += _rolled("after", self.shape, self.after, values)
        if self.perm != tuple(range(len(self.perm))):
            lines += _remapped("turn", turned, tuple(steps[p] for p in self.perm), values)
        lines += _rolled("before", x.shape, self.before, values)
        lines.append("return load_x(at);")
        kind = "_".join(["roll", *("x" if n else "o" for n in (*self.before, *self.after)), *map(str, self.perm)])
        y = TensorType(x.dtype, self.shape)
        return (gather_map(target, kind, out(0, y), [Source("x", inp(0, x))], "\n  ".join(lines), values),)


def _remapped(
    name: str, shape: tuple[int, ...], steps: tuple[int, ...], values: dict[str, int], shifts: tuple[int, ...] = ()
) -> list[str]:
    """Return WGSL that splits index `at` into coordinates in `shape`, shifts them, and recombines them with `steps`."""
    lines = ["{", "  var rest = at;", "  at = 0u;"]
    for d in range(len(shape) - 1, -1, -1):
        size, step = f"{name}_size{d}", f"{name}_step{d}"
        values |= {size: shape[d], step: steps[d]}
        c = f"rest % params.{size}"
        if shifts and shifts[d]:
            values[f"{name}_shift{d}"] = shifts[d]
            c = f"({c} + params.{name}_shift{d}) % params.{size}"
        lines += [f"  at += {c if '(' not in c else f'({c})'} * params.{step};", f"  rest /= params.{size};"]
    return [*lines, "}"]


def _rolled(name: str, shape: tuple[int, ...], shifts: tuple[int, ...], values: dict[str, int]) -> list[str]:
    """Return WGSL that maps index `at` to its source in a roll; empty where nothing is shifted."""
    return _remapped(name, shape, contiguous(shape), values, shifts) if any(shifts) else []

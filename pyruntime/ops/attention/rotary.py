"""Rotary position embeddings, shared by several operators.

    y1 = cos · x1 - sin · x2,  y2 = sin · x1 + cos · x2

Pairs of components of a head are (j, j + half) or, interleaved, (2j, 2j + 1). Source: Su et al., 2021.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyruntime.ir import Array, Bound
from pyruntime.kernels import Dispatch, Operand, Source, Target, gather_map
from pyruntime.ops.base import Op

__all__ = ["Rotation", "check_positions", "heads_in", "position_bound", "rotate", "turn", "turned"]


def position_bound(input: int, rows: int, count: int = 1) -> Bound:
    """Return the range of valid positions for input `input`: `count` rows of the caches are read from each position."""
    one = type(count) is int and count == 1
    reason = "the rows of the caches" if one else "from which on the caches have rows for all tokens"
    return Bound(input, 0, rows - count, "positions", reason, "give fewer tokens or larger caches")


def check_positions(positions: Array, rows: int) -> None:
    """Raise RuntimeException if a position is not a row of the caches."""
    position_bound(0, rows).check(positions)


def heads_in(op: Op, shape: tuple[int, ...], heads: int | None) -> tuple[int, int, int, int]:
    """Return (B, H, S, D) of a shape [B, H, S, D], or [B, S, H·D] with H = `heads`. Raises InvalidGraph."""
    if len(shape) == 4:
        batch, count, length, size = shape
        return batch, count, length, size
    if len(shape) != 3 or not heads or heads < 0 or shape[2] % heads:
        op.fail(
            "an input of rank 3 or 4, and num_heads that divide the last dimension of the former", f"{shape}, {heads}"
        )
    return shape[0], heads, shape[1], shape[2] // heads


def rotate(x: Array, cosines: Array, sines: Array, positions: Array, interleaved: bool) -> Array:
    """Rotate the first components of x [B, H, S, D] by the angles in the caches' rows `positions` [B, S]."""
    check_positions(positions, cosines.shape[0])
    return turn(x, cosines[positions], sines[positions], interleaved)


def turn(x: Array, cosines: Array, sines: Array, interleaved: bool) -> Array:
    """Return x [B, H, S, D] as float32 with its first components rotated, given cosines and sines [B, S, R / 2]."""
    return turned(x, cosines[:, None], sines[:, None], 2 * cosines.shape[2], interleaved)


def turned(x: Array, cosines: Array, sines: Array, count: int, interleaved: bool) -> Array:
    """The first `count` components of x turned, in float32; tables have a column for each, or for each pair."""
    first, second = slice(0, count // 2), slice(count // 2, count)
    if interleaved:
        first, second = slice(0, count, 2), slice(1, count, 2)
    ways = (first, second) if cosines.shape[-1] == count else (slice(None), slice(None))
    c, s, y = cosines.astype(np.float32), sines.astype(np.float32), x.astype(np.float32)
    one, two = y[..., first].copy(), y[..., second].copy()
    y[..., first] = one * c[..., ways[0]] - two * s[..., ways[0]]
    y[..., second] = two * c[..., ways[1]] + one * s[..., ways[1]]
    return y


@dataclass(frozen=True, slots=True)
class Rotation:
    """A rotary embedding of x [B, H, S, D] or [B, S, H·D]; it rotates the first 2 · `half` components of each head."""

    heads: int
    length: int
    size: int
    half: int
    interleaved: bool

    def array(self, x: Array, cosines: Array, sines: Array, scale: float = 1.0) -> Array:
        """Return x rotated, given cosines and sines [B, S, half]. The rotated components are multiplied by `scale`."""
        view = x.reshape(-1, self.length, self.heads, self.size).swapaxes(1, 2) if x.ndim == 3 else x
        y = turn(view, cosines, sines, self.interleaved)
        y[..., : 2 * self.half] *= np.float32(scale)
        return (y.swapaxes(1, 2) if x.ndim == 3 else y).reshape(x.shape).astype(x.dtype)

    def dispatch(
        self,
        target: Target,
        name: str,
        y: Operand,
        tensors: Sequence[tuple[str, Operand]],
        row: str,
        values: dict[str, Any],
    ) -> Dispatch:
        """Return the dispatch of a kernel called `name` that writes the rotated x to y.

        Args:
            tensors: operands named x, cosines and sines, and others that `row` reads.
            row: WGSL u32 expression of the row of the tables for token `token` (index in [B, S]) and pair `j`.
            values: further uniforms that `row` reads. A float `scale` multiplies the rotated components.
        """
        x = tensors[0][1].type
        token = "i / (params.size_d * params.heads)"
        if x.rank == 4:
            token = f"{token[:-1]} * params.length) * params.length + i / params.size_d % params.length"
        pair = """let one = c < params.half;
  let j = select(c - params.half, c, one);
  let other = select(i - params.half, i + params.half, one);"""
        if self.interleaved:
            pair = """let one = (c & 1u) == 0u;
  let j = c / 2u;
  let other = select(i - 1u, i + 1u, one);"""
        element = f"""let c = i % params.size_d;
  let own = load_x(i);
  if (c >= 2u * params.half) {{ return own; }}
  let token = {token};
  {pair}
  let at = {row} * params.half + j;
  let turned = load_cosines(at) * own + select(1.0, -1.0, one) * load_sines(at) * load_x(other);
  return {"params.scale * " if "scale" in values else ""}turned;"""
        numbers = {"size_d": self.size, "heads": self.heads, "length": self.length, "half": self.half, **values}
        sources = [Source(n, o) for n, o in tensors]
        full = f"{name}_{'pairs' if self.interleaved else 'halves'}{x.rank}"
        return gather_map(target, full, y, sources, element, numbers, flops=3 * x.size)

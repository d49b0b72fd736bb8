"""MRotaryEmbedding: rotary embedding by time, row or column of a token. Source: com.microsoft.

y1 = scale · (cos · x1 - sin · x2),  y2 = scale · (sin · x1 + cos · x2)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pyruntime.ir import Array, Bound, DType, TensorType
from pyruntime.kernels import Dispatch, Target, inp, out
from pyruntime.ops.attention.rotary import Rotation, check_positions, heads_in, position_bound
from pyruntime.ops.base import Op, op

_STREAM = (
    "select(select(2u, 1u, j < params.second), 0u, j < params.first)",
    "select(0u, j % 3u, j % 3u != 0u && j < select(params.first, params.second, j % 3u == 2u))",
)
"""WGSL index of the position stream that pair j reads, by `mrope_layout`; for first and second see `_limits`."""


@op("MRotaryEmbedding", opsets=range(1, 2), domain="com.microsoft")
class MRotaryEmbedding(Op):
    """x: [B, S, H·D], with `num_heads`, or [B, H, S, D]; caches: [positions, R / 2] in the type of x.

    position_ids: int64 [3, B, S], for time, rows and columns. `mrope_section` gives the number of the R / 2 pairs
    rotated by each of the three. With `mrope_layout` 0 they are consecutive groups. With 1 they are interleaved: pairs
    1, 4, .. are rotated by row and 2, 5, .. by column, up to 3 times their numbers, all others by time. The first R
    components of a head are rotated: `rotary_embedding_dim`, which requires `num_heads`, or all. Pairs are (j, j + R /
    2) or, with `interleaved` 1, (2j, 2j + 1). `scale` (default 1) multiplies the rotated components.
    `is_packed_batching` has no effect, as in onnxruntime. Computed in float32 and rounded once.
    """

    interleaved: int | None = None
    is_packed_batching: int | None = None
    mrope_layout: int | None = None
    mrope_section: tuple[int, ...]
    num_heads: int | None = None
    rotary_embedding_dim: int | None = None
    scale: float | None = None

    def rotation(self, shape: tuple[int, ...]) -> Rotation:
        """Return the rotation for x of a shape. Raises InvalidGraph."""
        _, heads, length, size = heads_in(self, shape, self.num_heads)
        turning = self.rotary_embedding_dim or size
        if self.rotary_embedding_dim and not self.num_heads:
            self.fail("num_heads with rotary_embedding_dim", self.num_heads)
        if turning < 2 or turning % 2 or turning > size:
            self.fail(f"an even number of components to rotate, at most {size}", turning)
        section = self.mrope_section
        if len(section) != 3 or min(section) < 0 or sum(section) != turning // 2:
            self.fail(f"an mrope_section of three numbers with the sum {turning // 2}", list(section))
        if self.mrope_layout not in (None, 0, 1):
            self.fail("an mrope_layout of 0 or 1", self.mrope_layout)
        return Rotation(heads, length, size, turning // 2, self.interleaved == 1)

    def infer(
        self, x: TensorType, positions: TensorType, cosines: TensorType, sines: TensorType
    ) -> tuple[TensorType, ...]:
        dtype = self.same_dtype(x, cosines, sines)
        if not dtype.is_float or dtype is DType.DOUBLE:
            self.fail("float, float16 or bfloat16", x)
        how = self.rotation(x.shape)
        half, tokens = how.half, (3, x.shape[0], how.length)
        if cosines.rank != 2 or not cosines.shape[0] or cosines.shape[1] != half or cosines.shape != sines.shape:
            self.fail(f"caches of one shape [positions, {half}]", f"{cosines} and {sines}")
        if positions.dtype is not DType.INT64 or positions.shape != tokens:
            self.fail(f"position_ids of int64 {list(tokens)}", positions)
        return (TensorType(dtype, x.shape),)

    def bounds(self, *inputs: Any) -> Sequence[Bound]:
        return [position_bound(1, inputs[2].shape[0])]

    def _limits(self) -> tuple[int, int]:
        """Return two limits of `_streams`.

        Layout 0: the first pairs of the second and third groups. Layout 1: the ends of the pairs by row and by column.
        """
        time, row, column = self.mrope_section
        return (3 * row, 3 * column) if self.mrope_layout else (time, time + row)

    def _streams(self) -> Array:
        """Return the index of the position stream that each pair reads, [R / 2]."""
        first, second = self._limits()
        j = np.arange(sum(self.mrope_section))
        if not self.mrope_layout:
            return (j >= first).astype(np.int64) + (j >= second)
        kind = j % 3
        return np.where((kind > 0) & (j < np.where(kind == 2, second, first)), kind, 0)

    def evaluate(self, x: Array, positions: Array, cosines: Array, sines: Array) -> tuple[Array, ...]:
        check_positions(positions, cosines.shape[0])
        streams = self._streams()
        at, pairs = np.moveaxis(positions[streams], 0, -1), np.arange(streams.size)
        scale = 1.0 if self.scale is None else self.scale
        return (self.rotation(x.shape).array(x, cosines[at, pairs], sines[at, pairs], scale),)

    def lower(
        self, target: Target, x: TensorType, positions: TensorType, cosines: TensorType, sines: TensorType
    ) -> tuple[Dispatch, ...]:
        (y,) = self.infer(x, positions, cosines, sines)
        how, layout = self.rotation(x.shape), self.mrope_layout or 0
        position = f"load_positions({_STREAM[layout]} * params.tokens + token)"
        row = f"u32(clamp(i64_saturate({position}), 0, i32(params.places) - 1))"
        first, second = self._limits()
        values = {"places": cosines.shape[0], "tokens": x.shape[0] * how.length, "first": first, "second": second}
        scale = {"scale": 1.0 if self.scale is None else self.scale}
        tensors = [("x", inp(0, x)), ("positions", inp(1, positions))]
        tensors += [("cosines", inp(2, cosines)), ("sines", inp(3, sines))]
        name = f"mrotary_{('groups', 'turns')[layout]}"
        return (how.dispatch(target, name, out(0, y), tensors, row, values | scale),)

"""RotaryEmbedding: rotate pairs of components by position. Source: com.microsoft operator RotaryEmbedding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pyruntime.ir import Array, Bound, DType, TensorType
from pyruntime.kernels import Dispatch, Target, inp, out
from pyruntime.ops.attention.rotary import Rotation, heads_in, position_bound
from pyruntime.ops.base import Op, op


@op("RotaryEmbedding", opsets=range(1, 2), domain="com.microsoft")
class RotaryEmbedding(Op):
    """x: [B, S, H·D] or [B, H, S, D]; caches: [positions, R / 2] in the type of x.

    position_ids: int64 [B, S], or one number: the position of the first token. The first R components of a head are
    rotated: `rotary_embedding_dim`, which requires `num_heads` for x of rank 3, or else all D = R, twice the caches'
    width. Pairs are (j, j + R / 2) or, with `interleaved`, (2j, 2j + 1). `scale` has no effect, as in onnxruntime, and
    `is_packed_batching` (concatenated sequences) none beyond position_ids. Computed in float32 and rounded once.
    """

    interleaved: int | None = None
    is_packed_batching: int | None = None
    num_heads: int | None = None
    rotary_embedding_dim: int | None = None
    scale: float | None = None

    def rotation(self, x: tuple[int, ...], cosines: tuple[int, ...]) -> Rotation:
        """Return the rotation of x by caches, given their shapes. Raises InvalidGraph."""
        if len(cosines) != 2 or not cosines[0]:
            self.fail("caches of shape [positions, R / 2]", list(cosines))
        if self.rotary_embedding_dim and not self.num_heads:
            self.fail("num_heads with rotary_embedding_dim", self.num_heads)
        _, heads, length, size = heads_in(self, x, self.num_heads or x[-1] // max(1, 2 * cosines[1]))
        turning = self.rotary_embedding_dim or size
        if turning != 2 * cosines[1] or turning > size:
            self.fail(f"caches for {turning} of {size} components", list(cosines))
        return Rotation(heads, length, size, cosines[1], bool(self.interleaved))

    def infer(
        self, x: TensorType, positions: TensorType, cosines: TensorType, sines: TensorType
    ) -> tuple[TensorType, ...]:
        dtype, tokens = self.same_dtype(x, cosines, sines), (x.shape[0], self.rotation(x.shape, cosines.shape).length)
        if not dtype.is_float or dtype is DType.DOUBLE or cosines.shape != sines.shape:
            self.fail("float, float16 or bfloat16, and caches of one shape", f"{x}, {cosines} and {sines}")
        if positions.dtype is not DType.INT64 or (positions.size != 1 and positions.shape != tokens):
            self.fail(f"position_ids of one int64, or {list(tokens)}", positions)
        return (TensorType(dtype, x.shape),)

    def bounds(self, *inputs: Any) -> Sequence[Bound]:
        x, positions, cosines = inputs[:3]
        length = self.rotation(x.shape, cosines.shape).length
        return [position_bound(1, cosines.shape[0], 1 if positions.shape == (x.shape[0], length) else length)]

    def evaluate(self, x: Array, positions: Array, cosines: Array, sines: Array) -> tuple[Array, ...]:
        how = self.rotation(x.shape, cosines.shape)
        self.check_bounds(x, positions, cosines)
        if positions.shape != (x.shape[0], how.length):
            positions = np.broadcast_to(positions.reshape(()) + np.arange(how.length), (x.shape[0], how.length))
        return (how.array(x, cosines[positions], sines[positions]),)

    def lower(
        self, target: Target, x: TensorType, positions: TensorType, cosines: TensorType, sines: TensorType
    ) -> tuple[Dispatch, ...]:
        (y,) = self.infer(x, positions, cosines, sines)
        how, name, position = (
            self.rotation(x.shape, cosines.shape),
            "rotary_of_caches",
            "i64_saturate(load_positions(token))",
        )
        if positions.shape != (x.shape[0], how.length):
            name = "rotary_from_first"
            position = "min(i64_saturate(load_positions(0u)), i32(params.places)) + i32(token % params.length)"
        row, values = f"u32(clamp({position}, 0, i32(params.places) - 1))", {"places": cosines.shape[0]}
        tensors = [("x", inp(0, x)), ("positions", inp(1, positions))]
        tensors += [("cosines", inp(2, cosines)), ("sines", inp(3, sines))]
        return (how.dispatch(target, name, out(0, y), tensors, row, values),)

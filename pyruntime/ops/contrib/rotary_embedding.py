"""RotaryEmbedding: pairs of components turned by position. Source: com.microsoft operator RotaryEmbedding.

y1 = cos · x1 - sin · x2,  y2 = sin · x1 + cos · x2
"""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Source, Target, gather_map, inp, out
from pyruntime.ops._rotary import Rotary, pair_code
from pyruntime.ops.base import op
from pyruntime.ops.contrib._attention import rotate


@op("RotaryEmbedding", opsets=range(1, 2), domain="com.microsoft")
class RotaryEmbedding(Rotary):
    """x: [B, S, H·D] or [B, H, S, D]; caches [positions, R / 2] of the type of x.

    position_ids: int64 [B, S], or one number: the position of the first token, from which they count on. The first R
    components of a head turn: `rotary_embedding_dim`, for which x of rank 3 needs `num_heads`, else all of them, and D
    is then the caches' width twice. Pairs are (j, j + R / 2) or, `interleaved`, (2j, 2j + 1). `scale` has no effect, as
    in onnxruntime; `is_packed_batching` says that sequences stand one behind the other, which positions tell.
    Computed in float32 and rounded once. GPUs clamp positions.
    """

    interleaved: int | None = None
    is_packed_batching: int | None = None
    num_heads: int | None = None
    rotary_embedding_dim: int | None = None
    scale: float | None = None

    def sizes(self, x: TensorType, cosines: TensorType) -> tuple[int, int, int, int]:
        """B, H, S, D. Raises InvalidGraph."""
        if cosines.rank != 2 or not cosines.shape[0]:
            self.fail("caches of shape [positions, R / 2]", cosines)
        if self.rotary_embedding_dim and not self.num_heads:
            self.fail("num_heads with rotary_embedding_dim", self.num_heads)
        if x.rank == 4:
            b, heads, s, size = x.shape
        elif x.rank == 3:
            (b, s, whole), width = x.shape, 2 * cosines.shape[1]
            heads = self.num_heads or whole // max(1, width)
            size = whole // max(1, heads)
            if heads * size != whole:
                self.fail(f"a last dimension that is a multiple of {heads} heads", x)
        else:
            self.fail("an input of rank 3 or 4", x)
        turning = self.rotary_embedding_dim or size
        if turning != 2 * cosines.shape[1] or turning > size:
            self.fail(f"caches for {turning} of {size} components", cosines)
        return b, heads, s, size

    def infer(
        self, x: TensorType, positions: TensorType, cosines: TensorType, sines: TensorType
    ) -> tuple[TensorType, ...]:
        dtype = self.same_dtype(x, cosines, sines)
        b, _, s, _ = self.sizes(x, cosines)
        if not dtype.is_float or dtype is DType.DOUBLE or cosines.shape != sines.shape:
            self.fail("float, float16 or bfloat16, and caches of one shape", f"{x}, {cosines} and {sines}")
        if positions.dtype is not DType.INT64 or (positions.size != 1 and positions.shape != (b, s)):
            self.fail(f"position_ids of one int64, or {[b, s]}", positions)
        return (TensorType(dtype, x.shape),)

    def positions(self, *inputs: TensorType | None) -> tuple[int, int, int] | None:
        x, positions, cosines = inputs[:3]
        assert x is not None and positions is not None and cosines is not None
        b, _, s, _ = self.sizes(x, cosines)
        return 1, cosines.shape[0], 1 if positions.shape == (b, s) else s

    def evaluate(self, x: Array, positions: Array, cosines: Array, sines: Array) -> tuple[Array, ...]:
        b, heads, s, size = self.sizes(*(TensorType(DType.from_numpy(a.dtype), a.shape) for a in (x, cosines)))
        view = x.reshape(b, s, heads, size).swapaxes(1, 2) if x.ndim == 3 else x
        at = positions
        if positions.shape != (b, s):
            at = np.broadcast_to(positions.reshape(()) + np.arange(s), (b, s))
        y = rotate(view, cosines, sines, at, bool(self.interleaved))
        return ((y.swapaxes(1, 2) if x.ndim == 3 else y).reshape(x.shape).astype(x.dtype),)

    def lower(
        self, target: Target, x: TensorType, positions: TensorType, cosines: TensorType, sines: TensorType
    ) -> tuple[Dispatch, ...]:
        (y,) = self.infer(x, positions, cosines, sines)
        b, heads, s, size = self.sizes(x, cosines)
        position = "i64_saturate(load_positions(token))"
        if positions.shape != (b, s):
            position = "min(i64_saturate(load_positions(0u)), i32(params.places)) + i32(token % params.length)"
        element = f"""{pair_code(x.rank, bool(self.interleaved))}
  let at = u32(clamp({position}, 0, i32(params.places) - 1)) * params.half + j;
  return load_cosines(at) * own + select(1.0, -1.0, one) * load_sines(at) * load_x(other);"""
        values = {
            "size_d": size,
            "heads": heads,
            "length": s,
            "half": cosines.shape[1],
            "places": cosines.shape[0],
        }
        fields = tuple((name, "u32") for name in values)
        sources = [Source("x", inp(0, x)), Source("positions", inp(1, positions))]
        sources += [Source("cosines", inp(2, cosines)), Source("sines", inp(3, sines))]
        name = f"rotary_embedding_{'pairs' if self.interleaved else 'halves'}{x.rank}" + "_first" * (
            positions.shape != (b, s)
        )
        return (gather_map(target, name, out(0, y), sources, element, fields, values, flops=3 * x.size),)

"""RotaryEmbedding: pairs of components turned by position-dependent angles. Source: ONNX operator; Su et al., 2021.

    y1 = cos · x1 - sin · x2,  y2 = sin · x1 + cos · x2

x: [B, H, S, D] or [B, S, H·D]. The first `rotary_embedding_dim` components of a head turn (0: all), the rest stay.
Pairs are (j, j + half) or, interleaved, (2j, 2j + 1). The caches are [positions, half] read at position_ids [B, S], or
[B, S, half] without. Computed in float32 and rounded once. GPUs clamp positions.
"""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Source, Target, gather_map, inp, out
from pyruntime.ops._rotary import Rotary, check_positions
from pyruntime.ops.base import LATEST, op


@op("RotaryEmbedding", opsets=range(23, LATEST + 1))
class RotaryEmbedding(Rotary):
    """`num_heads` is needed for inputs of rank 3."""

    interleaved: int = 0
    num_heads: int | None = None
    rotary_embedding_dim: int = 0

    def sizes(self, shape: tuple[int, ...]) -> tuple[int, int, int, int, int]:
        """B, H, S, D and how many components of a head turn. Raises InvalidGraph."""
        if len(shape) == 3 and self.num_heads and shape[2] % self.num_heads == 0:
            b, s, heads, size = *shape[:2], self.num_heads, shape[2] // self.num_heads
        elif len(shape) == 4:
            b, heads, s, size = shape
        else:
            self.fail("x of rank 4, or of rank 3 with num_heads that divide it", list(shape))
        turning = self.rotary_embedding_dim or size
        if turning % 2 or turning > size:
            self.fail(f"an even number of at most {size} components to turn", turning)
        return b, heads, s, size, turning

    def infer(
        self, x: TensorType, cos: TensorType, sin: TensorType, positions: TensorType | None = None
    ) -> tuple[TensorType, ...]:
        dtype = self.same_dtype(x, cos, sin)
        b, _, s, _, turning = self.sizes(x.shape)
        lead = cos.shape[:1] if positions is not None else (b, s)
        if not cos.shape == sin.shape == (*lead, turning // 2):
            self.fail(f"caches of shape {['positions' if positions else 'B, S', turning // 2]}", f"{cos}, {sin}")
        if positions is not None and positions.shape != (b, s):
            self.fail(f"position_ids of shape {[b, s]}", positions)
        return (TensorType(dtype, x.shape),)

    def positions(self, *inputs: TensorType | None) -> tuple[int, int, int] | None:
        cos = inputs[1]
        return (3, cos.shape[0], 1) if cos is not None and len(inputs) > 3 and inputs[3] is not None else None

    def evaluate(self, x: Array, cos: Array, sin: Array, positions: Array | None = None) -> tuple[Array, ...]:
        b, heads, s, size, turning = self.sizes(x.shape)
        view = x.reshape(b, s, heads, size) if x.ndim == 3 else x.swapaxes(1, 2)
        if positions is not None:
            check_positions(positions, cos.shape[0])
            cos, sin = cos[positions], sin[positions]
        c, n = (v.astype(np.float32)[:, :, None, :] for v in (cos, sin))
        first, second = (slice(0, turning, 2), slice(1, turning, 2))
        if not self.interleaved:
            first, second = slice(0, turning // 2), slice(turning // 2, turning)
        x1, x2 = view[..., first].astype(np.float32), view[..., second].astype(np.float32)
        y = view.copy()
        y[..., first] = c * x1 - n * x2
        y[..., second] = n * x1 + c * x2
        return ((y if x.ndim == 3 else y.swapaxes(1, 2)).reshape(x.shape),)

    def lower(
        self,
        target: Target,
        x: TensorType,
        cos: TensorType,
        sin: TensorType,
        positions: TensorType | None = None,
    ) -> tuple[Dispatch, ...]:
        (y,) = self.infer(x, cos, sin, positions)
        _, heads, s, size, turning = self.sizes(x.shape)
        # Tokens in the order of the caches: of rank 4 tensors, batch entry and position with the head in between.
        token = "i / (params.size_d * params.heads)"
        if x.rank == 4:
            token = f"{token[:-1]} * params.length) * params.length + i / params.size_d % params.length"
        clamped = "u32(clamp(i64_saturate(load_positions(token)), 0, i32(params.places) - 1))"
        row = clamped if positions is not None else "token"
        pair = (
            "let j = c / 2u;\n  let one = (c & 1u) == 0u;\n  let other = select(i - 1u, i + 1u, one);"
            if self.interleaved
            else "let one = c < params.half;\n  let j = select(c - params.half, c, one);\n"
            "  let other = select(i - params.half, i + params.half, one);"
        )
        element = f"""
  let c = i % params.size_d;
  let own = load_x(i);
  if (c >= 2u * params.half) {{ return own; }}
  let token = {token};
  {pair}
  let at = {row} * params.half + j;
  let across = load_x(other);
  return load_cos_cache(at) * own + select(1.0, -1.0, one) * load_sin_cache(at) * across;"""
        values = {"size_d": size, "heads": heads, "length": s, "half": turning // 2, "places": cos.shape[0]}
        fields = tuple((name, "u32") for name in values)
        sources = [Source("x", inp(0, x)), Source("cos_cache", inp(1, cos)), Source("sin_cache", inp(2, sin))]
        if positions is not None:
            sources.append(Source("positions", inp(3, positions)))
        name = f"rotary_{'pairs' if self.interleaved else 'halves'}{x.rank}"
        return (gather_map(target, name, out(0, y), sources, element, fields, values, flops=3 * x.size),)

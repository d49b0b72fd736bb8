"""RotaryEmbedding: rotate pairs of components by position-dependent angles. Source: ONNX operator; Su et al., 2021.

    y1 = cos · x1 - sin · x2,  y2 = sin · x1 + cos · x2

x: [B, H, S, D] or [B, S, H·D]. The first `rotary_embedding_dim` components of a head (0: all) are rotated. Pairs are
(j, j + half) or, interleaved, (2j, 2j + 1). With position_ids [B, S], the caches are [positions, half]; without, they
are [B, S, half]. Computed in float32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyruntime.ir import Array, Bound, TensorType
from pyruntime.kernels import Dispatch, Target, inp, out
from pyruntime.ops.attention.rotary import Rotation, check_positions, heads_in, position_bound
from pyruntime.ops.base import LATEST, Op, op


@op("RotaryEmbedding", opsets=range(23, LATEST + 1))
class RotaryEmbedding(Op):
    """Rotary position embedding. Inputs of rank 3 require `num_heads`."""

    interleaved: int = 0
    num_heads: int | None = None
    rotary_embedding_dim: int = 0

    def rotation(self, shape: tuple[int, ...]) -> Rotation:
        """Return the rotation for x of a shape. Raises InvalidGraph."""
        _, heads, length, size = heads_in(self, shape, self.num_heads)
        turning = self.rotary_embedding_dim or size
        if turning % 2 or turning > size:
            self.fail(f"an even number of at most {size} components to rotate", turning)
        return Rotation(heads, length, size, turning // 2, bool(self.interleaved))

    def infer(
        self, x: TensorType, cos: TensorType, sin: TensorType, positions: TensorType | None = None
    ) -> tuple[TensorType, ...]:
        dtype = self.floating(x, cos, sin)
        how, tokens = self.rotation(x.shape), (x.shape[0], x.shape[1 if x.rank == 3 else 2])
        lead = cos.shape[:1] if positions is not None else tokens
        if not cos.shape == sin.shape == (*lead, how.half):
            self.fail(f"caches of shape {['positions' if positions else 'B, S', how.half]}", f"{cos}, {sin}")
        if positions is not None and positions.shape != tokens:
            self.fail(f"position_ids of shape {list(tokens)}", positions)
        return (TensorType(dtype, x.shape),)

    def bounds(self, *inputs: Any) -> Sequence[Bound]:
        _, cos, _, positions = (*inputs, None)[:4]
        return [] if positions is None else [position_bound(3, cos.shape[0])]

    def evaluate(self, x: Array, cos: Array, sin: Array, positions: Array | None = None) -> tuple[Array, ...]:
        if positions is not None:
            check_positions(positions, cos.shape[0])
            cos, sin = cos[positions], sin[positions]
        return (self.rotation(x.shape).array(x, cos, sin),)

    def lower(
        self,
        target: Target,
        x: TensorType,
        cos: TensorType,
        sin: TensorType,
        positions: TensorType | None = None,
    ) -> tuple[Dispatch, ...]:
        (y,) = self.infer(x, cos, sin, positions)
        tensors = [("x", inp(0, x)), ("cosines", inp(1, cos)), ("sines", inp(2, sin))]
        row, values = "token", {}
        if positions is not None:
            tensors.append(("positions", inp(3, positions)))
            row = "u32(clamp(i64_saturate(load_positions(token)), 0, i32(params.places) - 1))"
            values["places"] = cos.shape[0]
        return (self.rotation(x.shape).dispatch(target, "rotary", out(0, y), tensors, row, values),)

"""FusedRotary: rotary embedding of strided heads, with broadcast tables of cosines and sines.

    y[c] = x[c] · cos[j] - x[partner] · sin[j] for the first component of a pair, + for the second

Computed in float32 and rounded once. `passes/fusion/fuse_rotary.py` creates it from elementwise operators. Source: Su
et al., 2021.
"""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Source, Target, gather_map, inp, out
from pyruntime.kernels.attention.description import HeadView
from pyruntime.kernels.ir.indexing import broadcast_strides
from pyruntime.ops.attention.rotary import turned
from pyruntime.ops.base import Op, Unsupported, op

__all__ = ["FusedRotary"]

_ELEMENT = """
  let c = i % params.shape.w;
  let s = i / params.shape.w % params.shape.z;
  let h = i / (params.shape.w * params.shape.z) % params.shape.y;
  let b = i / (params.shape.w * params.shape.z * params.shape.y);
  let row = params.base + b * params.strides.x + h * params.strides.y + s * params.strides.z;
  let own = load_x(row + c * params.strides.w);
  if (c >= 2u * params.half) {{ return own; }}
  {pair}
  let across = load_x(row + other * params.strides.w);
  let angles = b * params.angle_strides.x + h * params.angle_strides.y + s * params.angle_strides.z
    + {column} * params.angle_strides.w;
  return own * load_cosines(angles) + select(across, -across, one) * load_sines(angles);"""

_HALVES = "let one = c < params.half;\n  let j = select(c - params.half, c, one);"
_OTHER = "let other = select(c - params.half, c + params.half, one);"
_PAIRS = "let one = (c & 1u) == 0u;\n  let j = c / 2u;\n  let other = c ^ 1u;"


@op("FusedRotary", opsets=range(1, 2), domain="pyruntime")
class FusedRotary(Op):
    """x: a tensor with view `view` [B, H, S, D] = `sizes`; cos and sin, of one shape, broadcast to [B, H, S, width].

    Attributes:
        turning: number of leading components of a head to rotate.
        width: `turning`, or half of it with one angle per pair.
        y_shape: shape of y, which has the elements of the view in row-major order.
        interleaved: pairs are (2j, 2j + 1) instead of (j, j + turning / 2).
    """

    sizes: tuple[int, int, int, int]
    view: HeadView
    turning: int
    width: int
    y_shape: tuple[int, ...]
    interleaved: bool = False

    def infer(self, x: TensorType, cos: TensorType, sin: TensorType) -> tuple[TensorType, ...]:
        return (TensorType(self.same_dtype(x, cos, sin), self.y_shape),)

    def evaluate(self, x: Array, cos: Array, sin: Array) -> tuple[Array, ...]:
        heads = self.view.array(x, self.sizes).astype(np.float32)
        table = (*self.sizes[:3], self.width)
        c, n = (np.broadcast_to(v.astype(np.float32), table) for v in (cos, sin))
        y = turned(heads, c, n, self.turning, self.interleaved)
        return (y.astype(x.dtype).reshape(self.y_shape),)

    def lower(self, target: Target, x: TensorType, cos: TensorType, sin: TensorType) -> tuple[Dispatch, ...]:
        if not x.dtype.is_float or x.dtype.is_wide:
            raise Unsupported("float64 is exact on the host")
        y = TensorType(x.dtype, self.y_shape)
        table = (*self.sizes[:3], self.width)
        values: dict[str, int | tuple[int, ...]] = {
            "shape": self.sizes,
            "strides": self.view.strides,
            "angle_strides": tuple(broadcast_strides(cos.shape, table)),
            "base": self.view.base,
            "half": self.turning // 2,
        }
        pair = _PAIRS if self.interleaved else f"{_HALVES}\n  {_OTHER}"
        full = self.width == self.turning
        element = _ELEMENT.format(pair=pair, column="c" if full else "j")
        sources = [Source("x", inp(0, x)), Source("cosines", inp(1, cos)), Source("sines", inp(2, sin))]
        name = f"rotary_views_{'pairs' if self.interleaved else 'halves'}{'' if full else '_shared'}"
        return (gather_map(target, name, out(0, y), sources, element, values, flops=3 * y.size),)

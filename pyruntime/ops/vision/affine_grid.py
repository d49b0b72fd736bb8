"""AffineGrid: grid[n, o] = theta[n] @ (x, y[, z], 1), the places of an image's pixels under an affine map.

Pixel k of L lies at -1 + 2k / (L - 1) with align_corners (0 where L is 1), else at -1 + (2k + 1) / L.
Source: ONNX operator AffineGrid (20).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Source, Target, gather_map, inp, out
from pyruntime.ops.base import LATEST, Op, op, refuse_float64
from pyruntime.ops.convolution.sliding import accumulator

ELEMENT = """let a = i % RANKu;
  var rest = i / RANKu;
  let row = (i / (params.pixels * RANKu) * RANKu + a) * (RANKu + 1u);
  var sum = load_theta(row + RANKu);
  for (var axis = 0u; axis < RANKu; axis++) {
    let extent = params.extents[axis];
    sum += load_theta(row + axis) * (f32(rest % extent) * params.steps[axis] + params.starts[axis]);
    rest = rest / extent;
  }
  return sum;"""


@op("AffineGrid", opsets=range(20, LATEST + 1))
class AffineGrid(Op):
    """theta: [N, 2, 3] or [N, 3, 4]; size: int64 [N, C, H, W] or [N, C, D, H, W], its value is needed while planning.

    grid: [N, H, W, 2] or [N, D, H, W, 3], coordinates innermost axis first.
    """

    align_corners: int = 0

    def spatial(self, theta: tuple[int, ...], size: tuple[int, ...]) -> tuple[int, ...]:
        """The image's spatial extents. Raises InvalidGraph."""
        rank = len(size) - 2
        if rank not in (2, 3) or theta != (size[0], rank, rank + 1) or min(size[2:]) < 0:
            self.fail("theta [N, 2, 3] with size [N, C, H, W], or [N, 3, 4] with [N, C, D, H, W]", f"{theta}, {size}")
        return size[2:]

    def line(self, extent: int) -> tuple[float, float]:
        """(start, step) of the coordinates along one axis."""
        if not self.align_corners:
            return -1 + 1 / max(extent, 1), 2 / max(extent, 1)
        return (-1.0, 2 / (extent - 1)) if extent > 1 else (0.0, 0.0)

    def infer(self, theta: TensorType, size: TensorType) -> tuple[TensorType, ...]:
        spatial = self.spatial(theta.shape, size.ints())
        return (theta.with_shape(theta.shape[0], *spatial, len(spatial)),)

    def evaluate(self, theta: Array, size: Array) -> tuple[Array, ...]:
        spatial = self.spatial(theta.shape, tuple(map(int, size)))
        wide = accumulator(theta.dtype)
        axes = [start + step * np.arange(n) for n, (start, step) in zip(spatial, map(self.line, spatial), strict=True)]
        places = np.stack([*reversed(np.meshgrid(*axes, indexing="ij")), np.ones(spatial)], axis=-1)
        grid = np.matmul(places.reshape(-1, len(spatial) + 1), theta.astype(np.float64).transpose(0, 2, 1))
        return (grid.reshape(theta.shape[0], *spatial, len(spatial)).astype(wide).astype(theta.dtype),)

    def lower(self, target: Target, theta: TensorType, size: TensorType) -> tuple[Dispatch, ...]:
        refuse_float64(theta)
        (grid,) = self.infer(theta, size)
        inner_first = grid.shape[-2:0:-1]
        lines = [self.line(n) for n in inner_first]
        values: dict[str, float | int | Sequence[float]] = {
            "extents": inner_first,
            "steps": [step for _, step in lines],
            "starts": [start for start, _ in lines],
            "pixels": math.prod(inner_first),
        }
        element = ELEMENT.replace("RANK", str(len(inner_first)))
        name = f"affine_grid_{len(inner_first)}d"
        return (gather_map(target, name, out(0, grid), [Source("theta", inp(0, theta))], element, values),)

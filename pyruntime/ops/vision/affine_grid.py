"""AffineGrid: grid[n, o] = theta[n] @ (x, y[, z], 1), the positions of an image's pixels under an affine map.

Pixel k of L is at -1 + 2k / (L - 1) with align_corners (0 if L is 1), else at -1 + (2k + 1) / L. Source: ONNX operator
AffineGrid (20).
"""

from __future__ import annotations

import numpy as np

from pyruntime.ir import DType, TensorType
from pyruntime.ops.base import LATEST, op
from pyruntime.ops.decomposed import Decomposed, Expansion


@op("AffineGrid", opsets=range(20, LATEST + 1))
class AffineGrid(Decomposed):
    """theta: [N, 2, 3] or [N, 3, 4]; size: int64 [N, C, H, W] or [N, C, D, H, W], whose value planning needs.

    grid: [N, H, W, 2] or [N, D, H, W, 3], with coordinates in the order x, y, z.
    """

    align_corners: int = 0

    def spatial(self, theta: tuple[int, ...], size: tuple[int, ...]) -> tuple[int, ...]:
        """Return the spatial size of the image. Raises InvalidGraph."""
        rank = len(size) - 2
        if rank not in (2, 3) or theta != (size[0], rank, rank + 1) or min(size[2:]) < 0:
            self.fail("theta [N, 2, 3] with size [N, C, H, W], or [N, 3, 4] with [N, C, D, H, W]", f"{theta}, {size}")
        return size[2:]

    def line(self, extent: int) -> tuple[float, float]:
        """Return (start, step) of the coordinates along one axis."""
        if not self.align_corners:
            return -1 + 1 / max(extent, 1), 2 / max(extent, 1)
        return (-1.0, 2 / (extent - 1)) if extent > 1 else (0.0, 0.0)

    def expand(self, body: Expansion, theta: TensorType, size: TensorType) -> tuple[TensorType | None, ...]:
        spatial = self.spatial(theta.shape, size.ints())
        self.floating(theta)
        wide = theta.dtype if theta.dtype is DType.DOUBLE else DType.FLOAT
        axes = [start + step * np.arange(n) for n, (start, step) in zip(spatial, map(self.line, spatial), strict=True)]
        places = np.stack([*reversed(np.meshgrid(*axes, indexing="ij")), np.ones(spatial)], axis=-1)
        pixels = body.constant(places.reshape(-1, len(spatial) + 1).astype(wide.numpy), wide)
        grid = body("MatMul", pixels, body("Transpose", body.cast(theta, wide), perm=(0, 2, 1)))
        shape = body.ints(theta.shape[0], *spatial, len(spatial))
        return (body.cast(body("Reshape", grid, shape, allowzero=1), theta.dtype),)

"""CropAndResize. Points are anywhere, or where float32 has them exactly: at pixels, edges and halves."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array
from tests.contrib.case import Case
from tests.contrib.drawing import chance, floats, pick

__all__ = ["DRAWS"]


def draw(rng: np.random.Generator) -> Case:
    """Boxes inside, across the edge, turned over and of no size."""
    images, channels, count = (int(n) for n in rng.integers(1, 5, 3))
    if chance(rng):
        height, width = pick(rng, 1, 2, 3, 5, 9), pick(rng, 1, 2, 3, 5, 9)
        crop = [pick(rng, 1, 2, 3, 5), pick(rng, 1, 2, 3, 5)]
        rois = (rng.integers(-1, 6, (count, 4)) / 4).astype(np.float32)
    else:
        height, width = pick(rng, 2, 7, 20, 33), pick(rng, 3, 4, 11, 40)
        crop = [int(n) for n in rng.integers(1, 9, 2)]
        rois = rng.uniform(-0.3, 1.3, (count, 4)).astype(np.float32)
    x = floats(rng, (images, channels, height, width))
    which = rng.integers(0, images, count).astype(np.int32)
    attributes = {"mode": pick(rng, "bilinear", "nearest"), "extrapolation_value": pick(rng, 0.0, -1.5)}
    inputs: list[Array | None] = [x, rois, which, np.array(crop, np.int32)]
    return Case("CropAndResize", inputs, 1, attributes, needed=(3,))


DRAWS = {"CropAndResize": draw}

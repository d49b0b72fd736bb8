"""MaxRoiPool: max-pool regions of interest, rounded to pixels, to a grid of bins.

Source: ONNX operator MaxRoiPool (1, 22); Girshick 2015.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.errors import RuntimeException
from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Target, inp, launch, out
from pyruntime.ops.base import LATEST, Op, op, refuse_float64
from pyruntime.ops.convolution.sliding import accumulator


@op("MaxRoiPool", opsets=range(1, LATEST + 1))
class MaxRoiPool(Op):
    """x: [N, C, H, W]; rois: [R, 5] as batch index, x1, y1, x2, y2; y: [R, C, *pooled_shape]. Empty bins are 0."""

    pooled_shape: tuple[int, ...]
    spatial_scale: float = 1.0

    def infer(self, x: TensorType, rois: TensorType) -> tuple[TensorType, ...]:
        if x.rank != 4 or rois.rank != 2 or rois.shape[1] != 5:
            self.fail("x [N, C, H, W] and rois [R, 5]", f"{x}, {rois}")
        if len(self.pooled_shape) != 2 or min(self.pooled_shape) < 1:
            self.fail("a pooled_shape of two numbers of at least 1", list(self.pooled_shape))
        return (x.with_shape(rois.shape[0], x.shape[1], *self.pooled_shape),)

    def evaluate(self, x: Array, rois: Array) -> tuple[Array, ...]:
        images, channels, height, width = x.shape
        batch = rois[:, 0].astype(np.int64)
        if batch.size and not (batch.min() >= 0 and batch.max() < images):
            raise RuntimeException(f"MaxRoiPool: expected batch indices in [0, {images}), got {batch.tolist()}")
        wide = accumulator(x.dtype)
        scaled = rois[:, 1:].astype(wide) * wide.type(self.spatial_scale)
        borders = (np.sign(scaled) * np.floor(np.abs(scaled) + wide.type(0.5))).reshape(-1, 4)
        y = np.zeros((len(rois), channels, *self.pooled_shape), x.dtype)
        for r, (x1, y1, x2, y2) in enumerate(borders):
            rows = _bins(y1, y2, self.pooled_shape[0], height)
            columns = _bins(x1, x2, self.pooled_shape[1], width)
            for ph, (top, bottom) in enumerate(rows):
                for pw, (left, right) in enumerate(columns):
                    if bottom > top and right > left:
                        y[r, :, ph, pw] = x[batch[r], :, top:bottom, left:right].max(axis=(1, 2))
        return (y,)

    def lower(self, target: Target, x: TensorType, rois: TensorType) -> tuple[Dispatch, ...]:
        refuse_float64(x)
        (y,) = self.infer(x, rois)
        values = {
            "height": x.shape[2],
            "width": x.shape[3],
            "channels": x.shape[1],
            "bins_h": self.pooled_shape[0],
            "bins_w": self.pooled_shape[1],
            "size": y.size,
            "scale": self.spatial_scale,
        }
        tensors = {"x": inp(0, x), "rois": inp(1, rois), "y": out(0, y)}
        return (launch("max_roi_pool", tensors, target.grid(-(-y.size // 4)), {}, values),)


def _bins(first: Any, last: Any, count: int, extent: int) -> list[tuple[int, int]]:
    """Return [start, stop) of each of `count` bins over the pixels first .. last."""
    number = type(first)
    size = max(last - first + number(1), number(1)) / number(count)
    numbers = np.arange(count, dtype=number)
    starts = np.clip(np.floor(numbers * size) + first, 0, extent).astype(int)
    stops = np.clip(np.ceil((numbers + number(1)) * size) + first, 0, extent).astype(int)
    return [(int(a), int(b)) for a, b in zip(starts, stops, strict=True)]

"""RoiAlign: pool regions of interest to a grid of bins, from bilinearly interpolated points.

Source: ONNX operator RoiAlign (10, 16, 22); He et al. 2017.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pyruntime.ir import Array, Bound, TensorType
from pyruntime.kernels import Dispatch, Target, inp, launch, out
from pyruntime.ops.base import LATEST, Op, Unsupported, attributes, op, refuse_float64
from pyruntime.ops.convolution.sliding import accumulator

NO_LEAST = -3.0e38


@attributes
class _RoiAlign(Op):
    """x: [N, C, H, W]; rois: [R, 4] as x1, y1, x2, y2; batch_indices: int64 [R].

    y: [R, C, output_height, output_width]. In mode 'max', the maximum is over the weighted corners of all points, as in
    the reference implementation and onnxruntime.
    """

    coordinate_transformation_mode = "output_half_pixel"
    mode: str = "avg"
    output_height: int = 1
    output_width: int = 1
    sampling_ratio: int = 0
    spatial_scale: float = 1.0

    @property
    def half_pixel(self) -> bool:
        """Whether regions are shifted by half a pixel, and may be smaller than one pixel."""
        return self.coordinate_transformation_mode == "half_pixel"

    def infer(self, x: TensorType, rois: TensorType, batch_indices: TensorType) -> tuple[TensorType, ...]:
        if x.rank != 4 or rois.rank != 2 or rois.shape[1] != 4 or batch_indices.shape != rois.shape[:1]:
            self.fail("x [N, C, H, W], rois [R, 4], batch_indices [R]", f"{x}, {rois}, {batch_indices}")
        self.floating(x, rois)
        if self.mode.lower() not in ("avg", "max") or min(self.output_height, self.output_width) < 1:
            self.fail("mode 'avg' or 'max' and an output of at least 1 x 1", self)
        return (x.with_shape(rois.shape[0], x.shape[1], self.output_height, self.output_width),)

    def bounds(self, *inputs: Any) -> Sequence[Bound]:
        return [Bound(2, 0, inputs[0].shape[0] - 1, "batch_indices", "the images of x", "give others or more images")]

    def evaluate(self, x: Array, rois: Array, batch_indices: Array) -> tuple[Array, ...]:
        self.check_bounds(x, rois, batch_indices)
        channels, height, width = x.shape[1:]
        wide = accumulator(x.dtype)
        y = np.zeros((len(rois), channels, self.output_height, self.output_width), wide)
        if not x.size:
            return (y.astype(x.dtype),)
        boxes = rois.astype(wide) * wide.type(self.spatial_scale) - wide.type(0.5 if self.half_pixel else 0)
        for r, (x1, y1, x2, y2) in enumerate(boxes):
            rows = self._points(y1, y2, self.output_height, height)
            columns = self._points(x1, x2, self.output_width, width)
            plane = x[batch_indices[r]].astype(wide)
            if self.mode.lower() == "avg":
                # Bilinear weights are separable, so the mean is a product of three matrices.
                mean = rows.matrix(height) @ plane @ columns.matrix(width).T
                y[r] = mean / max(rows.count * columns.count, 1)
            else:
                y[r] = rows.greatest(plane, columns)
        return (y.astype(x.dtype),)

    def _points(self, start: Any, stop: Any, bins: int, extent: int) -> _Points:
        """Return the points between two NumPy scalars, computed in their type."""
        number = type(start)
        length = stop - start if self.half_pixel else max(stop - start, number(1))
        size = length / number(bins)
        count = self.sampling_ratio if self.sampling_ratio > 0 else max(math.ceil(size), 0)
        offsets = (np.arange(count, dtype=number) + number(0.5)) * size / number(max(count, 1))
        return _Points(start + np.arange(bins, dtype=number)[:, None] * size + offsets, extent)

    def lower(self, target: Target, x: TensorType, rois: TensorType, batch_indices: TensorType) -> tuple[Dispatch, ...]:
        refuse_float64(x)
        if not x.size:
            raise Unsupported("an image without pixels is 0 on the host")
        (y,) = self.infer(x, rois, batch_indices)
        values = {
            "height": x.shape[2],
            "width": x.shape[3],
            "channels": x.shape[1],
            "bins_h": self.output_height,
            "bins_w": self.output_width,
            "ratio": max(self.sampling_ratio, 0),
            "size": y.size,
            "scale": self.spatial_scale,
            "shift": 0.5 if self.half_pixel else 0.0,
            "least": NO_LEAST if self.half_pixel else 1.0,
        }
        tensors = {"x": inp(0, x), "rois": inp(1, rois), "batch_indices": inp(2, batch_indices), "y": out(0, y)}
        flags = {"MAXIMUM": int(self.mode.lower() == "max")}
        return (launch("roi_align", tensors, target.grid(-(-y.size // 4)), flags, values),)


class _Points:
    """Sampling points [bins, count] along one axis, and the two pixels around each of them."""

    def __init__(self, at: Array, extent: int) -> None:
        self.bins, self.count = at.shape
        self.inside = (at >= -1) & (at <= extent)
        place = np.clip(at, 0, extent - 1)
        self.low = place.astype(np.int64)
        self.high = np.minimum(self.low + 1, extent - 1)
        self.part = place - self.low

    def matrix(self, extent: int) -> Array:
        """Return the summed weights of the points for each pixel, [bins, extent]."""
        weights = np.zeros((self.bins, extent), self.part.dtype)
        bins = np.arange(self.bins)[:, None]
        np.add.at(weights, (bins, self.low), np.where(self.inside, 1 - self.part, 0))
        np.add.at(weights, (bins, self.high), np.where(self.inside, self.part, 0))
        return weights

    def greatest(self, plane: Array, columns: _Points) -> Array:
        """Return the largest weighted corner in plane [C, H, W], as [C, bins, columns.bins]; 0 without points."""
        shape = (plane.shape[0], self.bins, self.count, columns.bins, columns.count)
        if not self.count * columns.count:
            return np.zeros((shape[0], shape[1], shape[3]), plane.dtype)
        best = np.full(shape, -np.inf, plane.dtype)
        for row, row_weight in ((self.low, 1 - self.part), (self.high, self.part)):
            for column, column_weight in ((columns.low, 1 - columns.part), (columns.high, columns.part)):
                seen = plane[:, row[:, :, None, None], column[None, None]]
                weight = row_weight[:, :, None, None] * column_weight[None, None]
                counts = self.inside[:, :, None, None] & columns.inside[None, None]
                best = np.maximum(best, np.where(counts, weight * seen, 0))
        return np.asarray(best.max(axis=(2, 4)))


@op("RoiAlign", opsets=range(16, LATEST + 1))
class RoiAlign(_RoiAlign):
    """RoiAlign from opset 16 on: regions are shifted by half a pixel by default (`coordinate_transformation_mode`)."""

    coordinate_transformation_mode: str = "half_pixel"


@op("RoiAlign", opsets=range(10, 16))
class RoiAlign10(_RoiAlign):
    """RoiAlign before opset 16: regions are not shifted by half a pixel."""

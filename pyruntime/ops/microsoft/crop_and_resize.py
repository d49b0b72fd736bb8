"""CropAndResize: crop boxes of images and resize them, with aligned corners. Source: com.microsoft.CropAndResize."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pyruntime.ir import Array, Bound, DType, TensorType
from pyruntime.kernels import Dispatch, Source, Target, gather_map, inp, out
from pyruntime.ops.base import Op, Unsupported, op, refuse_float64
from pyruntime.ops.convolution.sliding import accumulator

_MODES = ("bilinear", "nearest")


@op("CropAndResize", opsets=range(1, 2), domain="com.microsoft")
class CropAndResize(Op):
    """x: [N, C, H, W]; rois: [R, 4] as y1, x1, y2, x2, relative to H - 1 and W - 1; batch_indices: int32 [R].

    crop_size: int32 [2], h and w. y: [R, C, h, w]. Row i of a crop samples at y1 · (H - 1) + i · (y2 - y1) · (H - 1) /
    (h - 1); if h = 1, at the center (y1 + y2) / 2 · (H - 1). Columns likewise. Points outside the image give
    `extrapolation_value`; others are interpolated bilinearly, or take the nearest pixel (ties: the later one).

    Points are computed in float32. The GPU's last bits may differ, so there a point less than four ulps outside the
    image counts as inside.
    """

    extrapolation_value: float = 0.0
    mode: str = "bilinear"

    @property
    def nearest(self) -> bool:
        """Whether the mode is nearest-neighbor."""
        return self.mode.lower() == "nearest"

    def infer(
        self, x: TensorType, rois: TensorType, batch_indices: TensorType, crop_size: TensorType
    ) -> tuple[TensorType, ...]:
        if self.mode.lower() not in _MODES:
            self.fail(f"mode {' or '.join(_MODES)}", self.mode)
        if not self.same_dtype(x, rois).is_float or x.rank != 4 or rois.rank != 2 or rois.shape[1] != 4:
            self.fail("x [N, C, H, W] and rois [R, 4] of one float type", f"{x}, {rois}")
        if batch_indices.dtype is not DType.INT32 or batch_indices.shape != rois.shape[:1]:
            self.fail(f"int32 batch_indices of shape {list(rois.shape[:1])}", batch_indices)
        if crop_size.dtype is not DType.INT32 or crop_size.shape != (2,):
            self.fail("an int32 crop_size of 2 elements", crop_size)
        height, width = crop_size.ints()
        if height < 1 or width < 1:
            self.fail("a crop_size of at least 1 x 1", f"{height} x {width}")
        return (x.with_shape(rois.shape[0], x.shape[1], height, width),)

    def bounds(self, *inputs: Any) -> Sequence[Bound]:
        return [Bound(2, 0, inputs[0].shape[0] - 1, "batch_indices", "the images of x", "give others or more images")]

    def evaluate(self, x: Array, rois: Array, batch_indices: Array, crop_size: Array) -> tuple[Array, ...]:
        self.check_bounds(x, rois, batch_indices, crop_size)
        channels, height, width = x.shape[1:]
        wide = accumulator(x.dtype)
        y = np.full((len(rois), channels, *map(int, crop_size)), self.extrapolation_value, wide)
        boxes = rois.astype(np.float32)
        rows = _points(boxes[:, 0], boxes[:, 2], int(crop_size[0]), height)
        columns = _points(boxes[:, 1], boxes[:, 3], int(crop_size[1]), width)
        for r, image in enumerate(batch_indices):
            (i,), (j,) = (np.nonzero((p >= 0) & (p <= n - 1)) for p, n in ((rows[r], height), (columns[r], width)))
            made = self._crop(x[image].astype(wide), rows[r][i], columns[r][j])
            y[r][:, i[:, None], j] = made
        return (y.astype(x.dtype),)

    def _crop(self, image: Array, rows: Array, columns: Array) -> Array:
        """Sample an image [C, H, W] at points inside it; returns [C, rows, columns]."""
        if self.nearest:
            i, j = (np.floor(p + np.float32(0.5)).astype(np.int64) for p in (rows, columns))
            return np.asarray(image[:, i[:, None], j])
        top, left = np.floor(rows).astype(np.int64), np.floor(columns).astype(np.int64)
        bottom, right = np.ceil(rows).astype(np.int64), np.ceil(columns).astype(np.int64)
        part_y, part_x = (rows - top).astype(image.dtype)[:, None], (columns - left).astype(image.dtype)
        upper, lower = image[:, top], image[:, bottom]
        upper, lower = (e[:, :, left] + (e[:, :, right] - e[:, :, left]) * part_x for e in (upper, lower))
        return np.asarray(upper + (lower - upper) * part_y)

    def lower(
        self, target: Target, x: TensorType, rois: TensorType, batch_indices: TensorType, crop_size: TensorType
    ) -> tuple[Dispatch, ...]:
        refuse_float64(x)
        if not x.size:
            raise Unsupported("an image without pixels is extrapolated on the host")
        (y,) = self.infer(x, rois, batch_indices, crop_size)
        found = """
  let pixel = u32(floor(row + 0.5)) * params.width + u32(floor(column + 0.5));
  return f32(load_x(plane + pixel));"""
        if not self.nearest:
            found = """
  let top = plane + u32(floor(row)) * params.width;
  let bottom = plane + u32(ceil(row)) * params.width;
  let left = u32(floor(column));
  let right = u32(ceil(column));
  let part = column - floor(column);
  let upper = mix(f32(load_x(top + left)), f32(load_x(top + right)), part);
  let under = mix(f32(load_x(bottom + left)), f32(load_x(bottom + right)), part);
  return mix(upper, under, row - floor(row));"""
        element = f"""
  let j = i % params.crop_w;
  let k = i / params.crop_w % params.crop_h;
  let c = i / (params.crop_w * params.crop_h) % params.channels;
  let r = i / (params.crop_w * params.crop_h * params.channels);
  let tall = f32(params.height - 1u);
  let wide = f32(params.width - 1u);
  var row = crop_point(f32(load_rois(4u * r)), f32(load_rois(4u * r + 2u)), k, params.crop_h, tall);
  var column = crop_point(f32(load_rois(4u * r + 1u)), f32(load_rois(4u * r + 3u)), j, params.crop_w, wide);
  let inside = row >= -4.8e-7 * tall && row <= tall + 4.8e-7 * tall
    && column >= -4.8e-7 * wide && column <= wide + 4.8e-7 * wide;
  if (!inside) {{ return params.outside; }}
  row = clamp(row, 0.0, tall);
  column = clamp(column, 0.0, wide);
  let image = u32(clamp(load_batch_indices(r), 0, i32(params.images) - 1));
  let plane = (image * params.channels + c) * params.height * params.width;{found}"""
        values: dict[str, Any] = {
            "images": x.shape[0],
            "channels": x.shape[1],
            "height": x.shape[2],
            "width": x.shape[3],
            "crop_h": y.shape[2],
            "crop_w": y.shape[3],
            "outside": self.extrapolation_value,
        }
        given = {"x": x, "rois": rois, "batch_indices": batch_indices}
        sources = [Source(n, inp(i, t)) for i, (n, t) in enumerate(given.items())]
        name = f"crop_and_resize_{self.mode.lower()}"
        return (gather_map(target, name, out(0, y), sources, element, values, _POINT),)


_POINT = """fn crop_point(first: f32, last: f32, i: u32, count: u32, extent: f32) -> f32 {
  if (count == 1u) { return 0.5 * (first + last) * extent; }
  // Correct the quotient: WGSL division may be inexact where the result is representable.
  let whole = (last - first) * extent;
  let steps = f32(count - 1u);
  var step = whole / steps;
  step += (whole - step * steps) / steps;
  return first * extent + f32(i) * step;
}"""


def _points(first: Array, last: Array, count: int, extent: int) -> Array:
    """Return the sampling positions of the rows or columns of each crop, float32 [R, count]."""
    size = np.float32(extent - 1)
    if count == 1:
        return np.asarray(np.float32(0.5) * (first + last) * size)[:, None]
    step = (last - first) * size / np.float32(count - 1)
    return np.asarray((first * size)[:, None] + np.arange(count, dtype=np.float32) * step[:, None])

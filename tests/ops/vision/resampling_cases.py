"""Random inputs and attributes for the resampling operators, the same on every run."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

from pyruntime.ir import Array

__all__ = ["grid_cases", "region_cases", "resize_cases"]

Case: TypeAlias = "tuple[str, list[Array | None], int, dict[str, Any]]"
COORDINATES = (
    "half_pixel",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
    "half_pixel_symmetric",
)


def resize_cases(count: int, seed: int = 0) -> Iterator[Case]:
    """Resize of two axes in every mode that onnxruntime and the specification agree on."""
    for number in range(count):
        r, rng = random.Random(1000 * seed + number), np.random.default_rng(1000 * seed + number)
        mode, coordinates = r.choice(("nearest", "linear", "cubic")), r.choice(COORDINATES)
        rank = {"nearest": r.choice((2, 3, 4, 5)), "linear": r.choice((2, 4, 5)), "cubic": 4}[mode]
        shape = [r.randint(1, 3) for _ in range(rank - 2)] + [r.randint(2, 7) for _ in range(2)]
        attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": coordinates}
        if mode == "nearest":
            attributes["nearest_mode"] = r.choice(("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"))
        if mode == "cubic":
            attributes |= {"cubic_coeff_a": r.choice((-0.5, -0.75)), "exclude_outside": r.choice((0, 1))}
        factors = [r.choice((0.5, 0.6, 1.5, 2, 2.7, 3)) for _ in range(2)]
        scales = np.array([1] * (rank - 2) + factors, np.float32)
        tail = [r.randint(2, 12) for _ in range(2)]
        roi = None
        if coordinates == "tf_crop_and_resize":
            # onnxruntime ignores the crop of an axis whose size stays.
            tail = [n + 1 if n == d else n for n, d in zip(tail, shape[-2:], strict=True)]
            roi = np.array([0] * (rank - 2) + [0.1, -0.2] + [1] * (rank - 2) + [0.9, 1.3], np.float32)
            attributes["extrapolation_value"] = -7.0
        dtype = r.choice(("float32", "int8", "uint8")) if mode == "nearest" else "float32"
        x = (rng.standard_normal(shape) * 10).astype(dtype)
        if coordinates == "tf_crop_and_resize" or number % 2:
            yield "Resize", [x, roi, None, np.array([*shape[:-2], *tail])], 19, attributes
        elif number % 4:
            yield "Resize", [x, None, np.array(factors, np.float32)], 19, {**attributes, "axes": [rank - 2, rank - 1]}
        else:
            yield "Resize", [x, roi, scales], 19, attributes


def grid_cases(count: int, seed: int = 0) -> Iterator[Case]:
    """GridSample over two and three axes, coordinates reaching outside; AffineGrid."""
    for number in range(count):
        r, rng = random.Random(1000 * seed + number), np.random.default_rng(1000 * seed + number)
        rank, images = r.choice((2, 2, 3)), r.choice((1, 2))
        align = r.choice((0, 1))
        if number % 5 == 0:
            size = np.array([images, 1, *(r.randint(2, 5) for _ in range(rank))])
            theta = rng.standard_normal((images, rank, rank + 1)).astype(np.float32)
            yield "AffineGrid", [theta, size], 20, {"align_corners": align}
            continue
        x = rng.standard_normal((images, r.choice((1, 3)), *(r.randint(2, 6) for _ in range(rank)))).astype(np.float32)
        places = rng.standard_normal((images, *(r.randint(1, 5) for _ in range(rank)), rank)) * 1.2
        opset = r.choice((16, 20)) if rank == 2 else 20
        mode = r.choice(("linear", "nearest", "cubic") if rank == 2 else ("linear", "nearest"))
        if opset == 16:
            mode = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
        padding = r.choice(("zeros", "border", "reflection"))
        attributes = {"mode": mode, "padding_mode": padding, "align_corners": align}
        yield "GridSample", [x, places.astype(np.float32)], opset, attributes


def region_cases(count: int, seed: int = 0) -> Iterator[Case]:
    """RoiAlign and MaxRoiPool, regions reaching outside, those of MaxRoiPool also turned inside out."""
    for number in range(count):
        r, rng = random.Random(1000 * seed + number), np.random.default_rng(1000 * seed + number)
        images, regions = r.choice((1, 2)), r.randint(1, 4)
        x = rng.standard_normal((images, r.choice((1, 3)), r.randint(3, 9), r.randint(3, 9))).astype(np.float32)
        boxes = (rng.random((regions, 4)) * 14 - 3).astype(np.float32)
        if number % 6:
            boxes = np.concatenate([np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])], 1)
        batch = rng.integers(0, images, regions)
        scale = r.choice((1.0, 0.5))
        if number % 3 == 0:
            rois = np.concatenate([batch[:, None], boxes], axis=1).astype(np.float32)
            pooled = [r.randint(1, 4), r.randint(1, 4)]
            yield "MaxRoiPool", [x, rois], 11, {"pooled_shape": pooled, "spatial_scale": scale}
            continue
        opset = r.choice((10, 16))
        attributes: dict[str, Any] = {
            "mode": r.choice(("avg", "max")),
            "output_height": r.randint(1, 4),
            "output_width": r.randint(1, 4),
            "sampling_ratio": r.choice((0, 1, 2, 3)),
            "spatial_scale": scale,
        }
        if opset == 16:
            attributes["coordinate_transformation_mode"] = r.choice(("half_pixel", "output_half_pixel"))
        yield "RoiAlign", [x, boxes, batch], opset, attributes

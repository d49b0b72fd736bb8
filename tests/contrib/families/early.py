"""What onnxruntime had before ONNX, and small matrix operators."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array
from tests.contrib.case import Case, Draw
from tests.contrib.drawing import F16, F32, chance, floats, pick, shape_of


def draw_trilu(rng: np.random.Generator) -> Case:
    x = floats(rng, shape_of(rng, 2, 4), pick(rng, F32, F16, np.float64, np.int64, np.int32, np.uint8, np.bool_), 9)
    k = np.array(int(rng.integers(-3, 4)), np.int64)
    upper = chance(rng)

    def reference(x: Array, k: Array | None = None) -> tuple[Array, ...]:
        at = 0 if k is None else int(k)
        return (np.triu(x, at) if upper else np.tril(x, at),)

    own = x.dtype not in (F32, np.float64, np.int64)  # onnxruntime's CPU has no more
    inputs: list[Array | None] = [x, k] if chance(rng) else [x]
    return Case("Trilu", inputs, 1, {"upper": int(upper)}, reference=reference if own else None)


def draw_grid_sample(rng: np.random.Generator) -> Case:
    n, c = int(rng.integers(1, 3)), int(rng.integers(1, 4))
    x = floats(rng, (n, c, int(rng.integers(2, 7)), int(rng.integers(2, 7))))
    grid = floats(rng, (n, int(rng.integers(1, 6)), int(rng.integers(1, 6)), 2), F32, 0.7)
    attributes = {
        "mode": pick(rng, "bilinear", "nearest", "bicubic"),
        "padding_mode": pick(rng, "zeros", "border", "reflection"),
        "align_corners": int(chance(rng)),
    }
    return Case("GridSample", [x, grid], 1, attributes, tolerance=(1e-3, 1e-4))


def draw_gather_nd(rng: np.random.Generator) -> Case:
    shape = (4, 3, 5)
    depth = int(rng.integers(1, 4))
    at = [rng.integers(-d, d, (2, 3)) for d in shape[:depth]]
    indices = np.stack(at, -1).astype(pick(rng, np.int32, np.int64))
    return Case(
        "GatherND", [floats(rng, shape, pick(rng, F32, F16, np.int32, np.int64, np.uint8, np.bool_), 3), indices]
    )


def draw_expand_dims(rng: np.random.Generator) -> Case:
    x = floats(rng, shape_of(rng, 1, 3), pick(rng, F32, F16, np.float64, np.int64, np.int8, np.bool_), 3)
    axis = np.array(int(rng.integers(-x.ndim - 1, x.ndim + 1)), np.int32)
    return Case("ExpandDims", [x, axis.reshape(1) if chance(rng) else axis])


def draw_pad(rng: np.random.Generator) -> Case:
    x = floats(rng, (int(rng.integers(3, 6)), int(rng.integers(3, 6))))
    mode = pick(rng, "constant", "reflect", "edge")
    pads = rng.integers(-1 if mode == "constant" else 0, 3, 4)
    value = floats(rng, pick(rng, (), (1,)))
    inputs: list[Array | None] = [x, pads.reshape(1, 4) if chance(rng) else pads, *([value] if chance(rng) else [])]
    return Case("Pad", inputs, 1, {"mode": mode})


def draw_range(rng: np.random.Generator) -> Case:
    dtype = pick(rng, F32, np.float64, np.int16, np.int32, np.int64)
    numbers = [np.array(n, dtype) for n in pick(rng, (1, 9, 2), (7, -3, -3), (0, 5), (5, 2), (3, 3))]
    return Case("Range", [n.reshape(1) if chance(rng) else n for n in numbers])


def draw_unique(rng: np.random.Generator) -> Case:
    return Case("Unique", [rng.integers(-4, 4, int(rng.integers(1, 30))).astype(F32)], 3, host=True)


def draw_cdist(rng: np.random.Generator) -> Case:
    k, dtype = int(rng.integers(1, 9)), pick(rng, F32, np.float64)
    a, b = (floats(rng, (int(rng.integers(1, 9)), k), dtype) for _ in range(2))
    # The difference of squares loses digits: an absolute error of a few float32 units of 10.
    tolerance = (1e-4, 1e-4) if dtype == F32 else (1e-9, 1e-9)
    attributes = {"metric": pick(rng, "sqeuclidean", "euclidean")}
    return Case("CDist", [a, b], 1, attributes, host=dtype != F32, tolerance=tolerance)


def draw_inverse(rng: np.random.Generator) -> Case:
    n, dtype = int(rng.integers(1, 6)), pick(rng, F32, np.float64, F16)
    lead = shape_of(rng, 0, 2)
    x = floats(rng, (*lead, n, n), dtype, 0.2) + 2 * np.eye(n, dtype=dtype)
    return Case("Inverse", [x.astype(dtype)], host=True)


DRAWS: dict[str, Draw] = {
    "Trilu": draw_trilu,
    "GridSample": draw_grid_sample,
    "GatherND": draw_gather_nd,
    "ExpandDims": draw_expand_dims,
    "Pad": draw_pad,
    "Range": draw_range,
    "Unique": draw_unique,
    "CDist": draw_cdist,
    "Inverse": draw_inverse,
}

"""SimplifiedLayerNormalization, the Skip normalisations, EmbedLayerNormalization, GroupNorm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pyruntime.ir import Array
from tests.contrib.case import Case, Draw
from tests.contrib.drawing import F16, F32, chance, floats, pick, shape_of

HALF = (4e-3, 4e-3)
"""Normalised float16 rows: the sum and the result are rounded, and onnxruntime rounds in other places."""


def draw_simplified(rng: np.random.Generator) -> Case:
    dtype = pick(rng, F32, F16)
    x = floats(rng, shape_of(rng, 1, 4), dtype, 2)
    axis = int(rng.integers(-x.ndim, x.ndim)) if chance(rng, 0.3) else -1
    scale = floats(rng, x.shape[axis:], pick(rng, dtype, F32))
    attributes = {"axis": axis, "epsilon": float(pick(rng, 1e-5, 1e-6, 0.1))}
    attributes |= {"stash_type": 1} if chance(rng) else {}
    outputs = 2 if chance(rng, 0.3) else 1
    opset = int(pick(rng, 11, 14, 17, 21, 23))
    tolerance = _half(dtype, scale)
    return Case("SimplifiedLayerNormalization", [x, scale], outputs, attributes, "", opset, tolerance=tolerance)


def _half(*arrays: Any) -> tuple[float, float] | None:
    return HALF if any(getattr(a, "dtype", a) == F16 for a in arrays) else None


def _sized(rng: np.random.Generator) -> int:
    return int(pick(rng, 1, 3, 4, 8, 33, 64, 100, 260))


def _skip(rng: np.random.Generator, op_type: str, vectors: int) -> Case:
    """input, skip, gamma and up to `vectors` more vectors."""
    dtype = pick(rng, F32, F16)
    x = floats(rng, shape_of(rng, 2, 3, _sized(rng)), dtype, 2)
    skips = [x.shape] if x.ndim == 2 else [x.shape, (1, *x.shape[1:]), x.shape[1:]]
    skip = floats(rng, pick(rng, *skips), dtype)
    vector = x.shape[-1:]
    rest = [floats(rng, vector, dtype) if chance(rng) else None for _ in range(vectors)]
    while rest and rest[-1] is None:
        rest.pop()
    attributes = {"epsilon": float(pick(rng, 1e-5, 0.1))} if chance(rng) else {}
    inputs = [x, skip, floats(rng, vector, dtype), *rest]
    # Short float16 rows may nearly cancel: their inverse deviation hangs on how often the sum was rounded.
    outputs = 1 if dtype == F16 and x.shape[-1] < 16 else int(pick(rng, 1, 4))
    return Case(op_type, inputs, outputs, attributes, tolerance=_half(dtype))


def draw_skip(rng: np.random.Generator) -> Case:
    return _skip(rng, "SkipLayerNormalization", 2)


def draw_skip_simplified(rng: np.random.Generator) -> Case:
    return _skip(rng, "SkipSimplifiedLayerNormalization", 1)


def draw_embed(rng: np.random.Generator) -> Case:
    dtype = F32
    batch, length, hidden = int(rng.integers(1, 4)), int(rng.integers(1, 9)), _sized(rng)
    words, places, kinds = 11, 16, 3

    def ids(rows: int, most: int) -> Array:
        return rng.integers(0, most, (rows, length)).astype(np.int32)

    segmented = chance(rng, 0.7)
    mask = ids(batch, 2) if chance(rng) else None
    positions = ids(int(pick(rng, 1, batch)), places) if chance(rng) else None
    inputs: list[Array | None] = [
        ids(batch, words),
        ids(batch, kinds) if segmented else None,
        floats(rng, (words, hidden), dtype),
        floats(rng, (places, hidden), dtype),
        floats(rng, (kinds, hidden), dtype) if segmented else None,
        floats(rng, (hidden,), dtype),
        floats(rng, (hidden,), dtype),
        mask,
        positions,
    ]
    while inputs[-1] is None:
        inputs.pop()
    attributes: dict[str, Any] = {"epsilon": float(pick(rng, 1e-12, 1e-6, 0.1))} if chance(rng) else {}
    attributes |= {"mask_index_type": int(chance(rng))} if chance(rng) else {}
    return Case("EmbedLayerNormalization", inputs, 3 if chance(rng) else 2, attributes)


def group_norm(attributes: dict[str, Any]) -> Callable[..., tuple[Array, ...]]:
    """The formula of GroupNorm and SkipGroupNorm."""

    def reference(x: Array, gamma: Array, beta: Array, *more: Array) -> tuple[Array, ...]:
        last = bool(attributes["channels_last"])
        s = x.astype(np.float64)
        if more:
            skip = more[0].astype(np.float64)
            if skip.ndim == 2:
                skip = skip[:, None, None, :] if last else skip[:, :, None, None]
            s = s + skip
        if len(more) > 1:
            s = s + (more[1].astype(np.float64) if last else more[1].astype(np.float64)[:, None, None])
        planes = np.moveaxis(s, -1, 1) if last else s
        groups = planes.reshape(planes.shape[0], attributes["groups"], -1)
        normal = (groups - groups.mean(-1, keepdims=True)) / np.sqrt(
            groups.var(-1, keepdims=True) + attributes.get("epsilon", 1e-5)
        )
        y = normal.reshape(planes.shape) * gamma[:, None, None] + beta[:, None, None]
        if attributes["activation"]:
            y = y / (1 + np.exp(-y))
        return (np.moveaxis(y, 1, -1) if last else y).astype(x.dtype), s.astype(x.dtype)

    return reference


def _group(rng: np.random.Generator, op_type: str) -> Case:
    dtype = pick(rng, F32, F16)
    groups, last = int(pick(rng, 1, 2, 4)), chance(rng, 0.7)
    n, c = int(rng.integers(1, 3)), groups * int(rng.integers(1, 5))
    h, w = (int(rng.integers(1, 9)) for _ in range(2))
    shape = (n, h, w, c) if last else (n, c, h, w)
    attributes: dict[str, Any] = {"groups": groups, "activation": int(chance(rng)), "channels_last": int(last)}
    attributes |= {"epsilon": float(pick(rng, 1e-6, 0.1))} if chance(rng) else {}
    weights = [floats(rng, (c,), pick(rng, F32, dtype)) for _ in range(2)]
    weights[1] = weights[1].astype(weights[0].dtype)
    inputs: list[Array | None] = [floats(rng, shape, dtype), *weights]
    if op_type == "SkipGroupNorm":
        one = (n, 1, 1, c) if last else (n, c, 1, 1)
        inputs.append(floats(rng, pick(rng, shape, one, (n, c)), dtype))
        if chance(rng):
            inputs.append(floats(rng, (c,), dtype))
    outputs = 2 if op_type == "SkipGroupNorm" and chance(rng) else 1
    tolerance = (1e-2, 1e-2) if dtype == F16 else None  # the sum, the weights and the result are rounded
    return Case(op_type, inputs, outputs, attributes, reference=group_norm(attributes), tolerance=tolerance)


def draw_group(rng: np.random.Generator) -> Case:
    return _group(rng, "GroupNorm")


def draw_skip_group(rng: np.random.Generator) -> Case:
    return _group(rng, "SkipGroupNorm")


DRAWS: dict[str, Draw] = {
    "SimplifiedLayerNormalization": draw_simplified,
    "SkipLayerNormalization": draw_skip,
    "SkipSimplifiedLayerNormalization": draw_skip_simplified,
    "EmbedLayerNormalization": draw_embed,
    "GroupNorm": draw_group,
    "SkipGroupNorm": draw_skip_group,
}

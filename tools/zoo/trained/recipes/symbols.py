"""Token ids in range, masks, lengths, bytes of a file, and characters around each character of a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tools.zoo.trained.recipes.context import Context

__all__ = ["VALUES", "around", "contents", "ids", "lengths", "mask", "positions", "tokens"]

Array = np.ndarray[Any, Any]


def tokens(context: Context, high: int, low: int = 0, start: int = -1, end: int = -1) -> Array:
    """Ids in [low, high), small ones more often, with optional `start` and `end` ids."""
    drawn = context.random.uniform(size=context.shape) ** 2
    made = (low + drawn * (high - low)).astype(np.int64)
    if start >= 0:
        made[..., 0] = start
    if end >= 0:
        made[..., -1] = end
    return made


def ids(context: Context, ids: Sequence[int]) -> Array:
    """The ids of a text, truncated to the length but with its last id."""
    return np.array([*ids[: context.shape[-1] - 1], ids[-1]], np.int64).reshape(context.shape)


def mask(context: Context, shorter: int = 0) -> Array:
    """Ones; rows after the first end with `shorter` zeros."""
    made = np.ones(context.shape, np.int64)
    if shorter:
        made[1:, -shorter:] = 0
    return made


def lengths(context: Context, of: str) -> Array:
    """The value of a letter, in each row."""
    return np.full(context.shape, context.sizes[of], np.int64)


def positions(context: Context, high: int) -> Array:
    """Corners of boxes: ids below `high`, ascending along the rows."""
    return np.sort(context.random.integers(0, high, context.shape), axis=-2)


def contents(context: Context) -> Array:
    """Bytes of files: source code, then random ones; padding is 256."""
    source = np.frombuffer(__doc__.encode() * 30, np.uint8).astype(np.int32)
    made = np.full(context.shape, 256, np.int32)
    for row in range(context.shape[0]):
        half = context.shape[1] // 2
        data = source if row % 2 == 0 else context.random.integers(0, 256, 700, np.int32)
        made[row, : min(half, len(data))] = data[:half]
        made[row, -min(half, len(data)) :] = data[-half:]
    return made


def around(context: Context, high: int) -> Array:
    """[characters, window] of ids: for each character the following ones, the preceding ones in reverse, and itself."""
    count, width = context.shape
    margin = width // 2
    text = np.random.default_rng(context.seed).integers(1, high, count + 2 * margin)
    text[:margin] = text[-margin:] = 1
    rows = [
        np.r_[text[i + 1 : i + margin + 1], text[i - margin : i][::-1], text[i]] for i in range(margin, count + margin)
    ]
    return np.stack(rows).astype(np.float32)


VALUES: Mapping[str, Any] = {
    "tokens": tokens,
    "ids": ids,
    "mask": mask,
    "lengths": lengths,
    "positions": positions,
    "contents": contents,
    "around": around,
}

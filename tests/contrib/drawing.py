"""What families draw their cases from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from pyruntime.ir import Array

__all__ = ["BFLOAT16", "F16", "F32", "chance", "floats", "of", "pick", "shape_of"]

F32 = np.dtype(np.float32)
F16 = np.dtype(np.float16)
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

_SIZES = (1, 2, 3, 4, 5, 7, 8, 12, 16, 33)


def floats(rng: np.random.Generator, shape: Sequence[int], dtype: Any = F32, scale: float = 1.0) -> Array:
    """Normally distributed numbers that `dtype` holds."""
    result: Array = np.asarray(rng.standard_normal(tuple(shape)) * scale).astype(dtype)
    return result


def shape_of(rng: np.random.Generator, least: int, most: int, last: int | None = None) -> tuple[int, ...]:
    """A shape of `least` to `most` dimensions, with the last one given or not."""
    rank = int(rng.integers(least, most + 1))
    dims = [int(rng.choice(_SIZES)) for _ in range(rank)]
    if last is not None:
        dims[-1] = last
    free = dims if last is None else dims[:-1]
    while np.prod(dims) > 20000:
        at = int(np.argmax(free))
        dims[at] = free[at] = free[at] // 2
    return tuple(dims)


def pick(rng: np.random.Generator, *options: Any) -> Any:
    """One of `options`."""
    return options[int(rng.integers(len(options)))]


def chance(rng: np.random.Generator, share: float = 0.5) -> bool:
    """True for about this share of all calls."""
    return bool(rng.random() < share)


def of(array: Array | None) -> Array | None:
    """The array in float64, for references."""
    return None if array is None else np.asarray(array).astype(np.float64)

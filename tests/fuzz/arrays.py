"""Tensors by kind and seed: what a failing sample prints is enough to make them again."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from tests.oracle import exact

__all__ = ["FLOATS", "INTEGERS", "NUMBERS", "make", "numpy_type"]

FLOATS = ("float32", "float16", "bfloat16", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
NUMBERS = FLOATS + INTEGERS

SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, np.nan, np.inf, -np.inf, 1e4, -1e4)
RANGES = {"unit": (0.001, 0.999), "positive": (0.1, 4.0), "above": (1.1, 4.0)}
SMALL_TYPES: dict[str, Any] = {
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
    "int4": ml_dtypes.int4,
    "uint4": ml_dtypes.uint4,
}


def numpy_type(name: str) -> np.dtype[Any]:
    """The NumPy (or ml_dtypes) type called `name`."""
    return np.dtype(SMALL_TYPES.get(name, name))


def make(dtype: str, shape: tuple[int, ...], kind: str, seed: int) -> np.ndarray[Any, Any]:
    """The tensor of this description.

    kind:
        'normal': floats around 0 (standard deviation 2), integers in [-9, 9] (unsigned: [0, 9]).
        'unit': in (0, 1); 'positive': in (0.1, 4); 'above': in (1.1, 4); 'ties': multiples of 0.5.
        'special': floats with NaN, infinities and both zeros; integers with the ends of their range.
        'full': integers over their whole range; 'factor': as far as onnxruntime's products with them are exact.
        'distinct': different numbers, in random order.
    """
    if kind == "factor":
        return exact(make(dtype, shape, "full", seed))
    rng = np.random.default_rng(seed)
    kindless = numpy_type(dtype)
    if dtype == "bool":
        return np.asarray(rng.random(shape) < 0.5)
    if kind == "distinct":
        return np.asarray(rng.permutation(int(np.prod(shape))).reshape(shape) - (3 if dtype[0] != "u" else 0), kindless)
    if dtype in INTEGERS or dtype in ("int4", "uint4"):
        return _integers(rng, kindless, shape, kind)
    if kind == "special":
        return np.asarray(rng.choice(SPECIAL, shape)).astype(kindless)
    if kind == "ties":
        return np.asarray(rng.integers(-9, 10, shape) * 0.5).astype(kindless)
    if kind in RANGES:
        low, high = RANGES[kind]
        return np.asarray(low + rng.random(shape) * (high - low)).astype(kindless)
    return np.asarray(rng.standard_normal(shape) * 2).astype(kindless)


def _integers(rng: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...], kind: str) -> Any:
    info = ml_dtypes.iinfo(dtype)
    low, high = int(info.min), int(info.max)
    if kind == "full":
        return np.asarray(rng.integers(low, high, shape, np.int64 if low < 0 else np.uint64, endpoint=True)).astype(
            dtype
        )
    if kind == "special":
        ends = np.array([low, high, 0, 1, low + 1, high - 1, 2], object).astype(dtype)
        return np.asarray(ends[rng.integers(0, 7, shape)])
    if kind == "positive":
        return np.asarray(rng.integers(1, min(9, high) + 1, shape)).astype(dtype)
    return np.asarray(rng.integers(max(low, -9), min(9, high) + 1, shape)).astype(dtype)

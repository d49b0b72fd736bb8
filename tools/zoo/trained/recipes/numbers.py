"""Numeric inputs: constants, random values, columns of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tools.zoo.trained.fetch import unpacked
from tools.zoo.trained.packages import located
from tools.zoo.trained.recipes.context import Context

__all__ = ["VALUES", "constant", "normal", "stored", "table", "uniform"]

Array = np.ndarray[Any, Any]


def constant(context: Context, value: float = 0.0) -> Array:
    """A constant."""
    return np.full(context.shape, value, np.float32)


def normal(context: Context, scale: float = 1.0, mean: float = 0.0) -> Array:
    """Normally distributed values."""
    return (context.random.standard_normal(context.shape) * scale + mean).astype(np.float32)


def uniform(context: Context, low: float = 0.0, high: float = 1.0) -> Array:
    """Uniformly distributed values."""
    return context.random.uniform(low, high, context.shape).astype(np.float32)


def table(context: Context, columns: Sequence[Sequence[float]]) -> Array:
    """Rows of columns, each [low, high], or [low, high, 1] for integers."""
    every = list(columns) if len(columns) > 1 else [*columns] * context.shape[-1]
    random, made = context.random, []
    for low, high, *whole in every:
        column = random.uniform(low, high, context.shape[:-1])
        made.append(np.round(column) if whole else column)
    return np.stack(made, -1).astype(np.float32)


def stored(context: Context, key: str, row: str) -> Array:
    """A row of an array in the model's asset, an .npz file; its index is the value of a letter."""
    package, path = located(context.assets[0])
    with np.load(unpacked(package) / path) as arrays:
        return np.asarray(arrays[key][context.sizes[row]], np.float32).reshape(context.shape)


VALUES: Mapping[str, Any] = {
    "constant": constant,
    "normal": normal,
    "uniform": uniform,
    "table": table,
    "stored": stored,
}

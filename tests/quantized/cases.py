"""Random operators on bytes: types, zero points, axes, sizes and batches differ from run to run; the seed is told."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from pyruntime.ir import Array

__all__ = ["conv_case", "matmul_case", "seeds"]

BYTES = (np.uint8, np.int8)


def seeds(count: int) -> list[int]:
    """New ones each time; PYRUNTIME_SEED=N repeats a run."""
    given = os.environ.get("PYRUNTIME_SEED")
    return [int(given)] if given else [int(s) for s in np.random.SeedSequence().generate_state(count)]


def bytes_of(rng: np.random.Generator, dtype: Any, shape: tuple[int, ...]) -> Array:
    """Any bytes, the extremes often."""
    info = np.iinfo(dtype)
    made = rng.integers(info.min, info.max + 1, shape)
    made = np.where(rng.random(shape) < 0.2, rng.choice([info.min, info.max], shape), made)
    return made.astype(dtype)


def matmul_case(rng: np.random.Generator) -> list[Any]:
    """a, b and the zero points of MatMulInteger, some of them absent."""
    m, n, k = (int(rng.choice([1, 2, 3, 5, 8, 9, 16, 31, 37, 64, 70])) for _ in range(3))
    k = int(rng.choice([k, 4 * k, 16 * k, 300, 1024]))
    batch: tuple[int, ...] = ((), (2,), (3, 2))[int(rng.integers(3))]
    a, b = BYTES[rng.integers(2)], BYTES[rng.integers(2)]
    left = bytes_of(rng, a, (*batch, m, k))
    right = bytes_of(rng, b, (*(batch if rng.random() < 0.3 else ()), k, n))
    zeros: list[Any] = [None, None]
    if rng.random() < 0.8:
        zeros[0] = bytes_of(rng, a, ())
    if rng.random() < 0.8:
        zeros[1] = bytes_of(rng, b, (n,) if right.ndim == 2 and rng.random() < 0.5 else ())
    return [left, right, *zeros]


def conv_case(rng: np.random.Generator) -> tuple[list[Any], dict[str, Any]]:
    """x, w and the zero points of ConvInteger, and its attributes."""
    rank = int(rng.choice([1, 2, 2, 2, 3]))
    group = int(rng.choice([1, 1, 1, 2, 4]))
    channels, maps = group * int(rng.choice([1, 3, 4, 8, 16])), group * int(rng.choice([1, 2, 5, 8, 33]))
    kernel = tuple(int(v) for v in rng.choice([1, 1, 2, 3, 5], rank))
    spatial = tuple(int(v) for v in rng.integers(9, 15, rank))
    dtype = BYTES[rng.integers(2)]
    w = BYTES[rng.integers(2)]
    attributes = {
        "group": group,
        "strides": [int(v) for v in rng.integers(1, 3, rank)],
        "dilations": [int(v) if k > 1 else 1 for v, k in zip(rng.integers(1, 3, rank), kernel, strict=True)],
        "pads": [int(v) for v in rng.integers(0, 3, 2 * rank)],
    }
    inputs: list[Any] = [
        bytes_of(rng, dtype, (int(rng.integers(1, 3)), channels, *spatial)),
        bytes_of(rng, w, (maps, channels // group, *kernel)),
        bytes_of(rng, dtype, ()) if rng.random() < 0.8 else None,
        bytes_of(rng, w, (maps,) if rng.random() < 0.5 else ()) if rng.random() < 0.7 else None,
    ]
    return inputs, attributes


def trimmed(inputs: list[Any]) -> list[Any]:
    """Without absent inputs at the end."""
    while inputs and inputs[-1] is None:
        inputs = inputs[:-1]
    return inputs


def rngs(count: int) -> Iterator[tuple[int, np.random.Generator]]:
    """Generators and their seeds."""
    for seed in seeds(count):
        yield seed, np.random.default_rng(seed)

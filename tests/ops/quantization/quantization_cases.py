"""Inputs of the quantization operators for tests on the host and on the GPU."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array
from tests.ops.elementwise.elementwise_cases import run

__all__ = ["DYNAMIC", "ZEROS", "block_scales", "run", "ties"]

ZEROS = [np.uint8(7), np.int8(-7), np.uint16(300), np.int16(-300)]

_rng = np.random.default_rng(6)
DYNAMIC = [
    _rng.standard_normal((3, 5)).astype(np.float32),
    np.array([0.0, 2.0, -3.0, -2.5, 1.34, 0.5], np.float32),
    np.array([-1.0, -2.1, -1.3, -2.5, -3.34, -4.0], np.float32),
    np.abs(_rng.standard_normal(1000)).astype(np.float32) + 1,
    np.zeros((3,), np.float32),
    np.array(2.5, np.float32),
    (_rng.standard_normal(70_001) * 30).astype(np.float32),
]


def block_scales(shape: tuple[int, ...], axis: int, block: int) -> tuple[Array, Array]:
    """Scales and int8 zero points for blocks of `block` along `axis`; the last may be shorter."""
    blocks = [*shape]
    blocks[axis] = -(-shape[axis] // block)
    count = int(np.prod(blocks))
    scale = np.linspace(0.3, 2.0, count, dtype=np.float32).reshape(blocks)
    return scale, (np.arange(count) % 11 - 5).astype(np.int8).reshape(blocks)


def ties(scale: float) -> Array:
    """Numbers whose quotient by `scale` is half-way between integers, or next to it."""
    halves = (np.arange(-200, 200) + 0.5).astype(np.float32) * np.float32(scale)
    return np.concatenate([halves, np.nextafter(halves, np.float32(np.inf)), np.nextafter(halves, np.float32(-np.inf))])

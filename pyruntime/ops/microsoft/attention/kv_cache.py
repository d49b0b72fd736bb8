"""KV caches of 8- and 4-bit integers: round(x / scale). 4-bit values plus 8 are stored in pairs, the even one low."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.ir import Array

__all__ = ["dequantized", "quantized"]


def _scales(scale: Any, x: Array) -> Array:
    """Reshape the scale so that it broadcasts to x [B, G, T, D]."""
    if scale.size == 1:
        return np.asarray(scale.reshape(1, 1, 1, 1), np.float32)
    return np.asarray(scale.reshape(1, x.shape[1], 1, -1), np.float32)


def quantized(x: Array, scale: Any, bits: int) -> Array:
    """Quantize x [B, G, T, D] to int8, or to uint8 [B, G, T, D / 2] for 4 bits."""
    limit = 1 << (bits - 1)
    q = np.clip(np.rint(x / _scales(scale, x)), -limit, limit - 1).astype(np.int8)
    if bits == 8:
        return q
    low, high = ((q[..., i::2] + 8).astype(np.uint8) for i in (0, 1))
    return low | (high << 4)


def dequantized(x: Array, scale: Any, bits: int, size: int) -> Array:
    """Dequantize x to float32 [B, G, T, size]."""
    if bits == 4:
        pairs = np.stack((x & 15, x >> 4), axis=-1).astype(np.float32) - 8
        x = pairs.reshape(*x.shape[:3], size)
    y: Array = x.astype(np.float32) * _scales(scale, x)
    return y

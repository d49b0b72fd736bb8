"""Caches of 8- and 4-bit integers: round(x / scale), 4 bits in pairs plus 8, the even component in the low half."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.ir import Array

__all__ = ["quantised", "unquantised"]


def _scales(scale: Any, x: Array) -> Array:
    """The scale as it broadcasts to x [B, G, T, D]."""
    if scale.size == 1:
        return np.asarray(scale.reshape(1, 1, 1, 1), np.float32)
    return np.asarray(scale.reshape(1, x.shape[1], 1, -1), np.float32)


def quantised(x: Array, scale: Any, bits: int) -> Array:
    """x [B, G, T, D] as int8, or as uint8 [B, G, T, D / 2]."""
    limit = 1 << (bits - 1)
    q = np.clip(np.rint(x / _scales(scale, x)), -limit, limit - 1).astype(np.int8)
    if bits == 8:
        return q
    low, high = ((q[..., i::2] + 8).astype(np.uint8) for i in (0, 1))
    return low | (high << 4)


def unquantised(x: Array, scale: Any, bits: int, size: int) -> Array:
    """The float32 [B, G, T, size] that x stands for."""
    if bits == 4:
        pairs = np.stack((x & 15, x >> 4), axis=-1).astype(np.float32) - 8
        x = pairs.reshape(*x.shape[:3], size)
    y: Array = x.astype(np.float32) * _scales(scale, x)
    return y

"""Conversions between NumPy dtypes with the same results on every platform.

Float to integer truncates. ONNX leaves out-of-range values undefined, and NumPy's result depends on the processor.
These functions return what x86 (and onnxruntime on x86) gives: the smallest value for int32 and int64, and the low bits
of the int32 for narrower types. For uint32 and uint64, negative numbers wrap and values above the range become 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.ir import Array, is_dim

__all__ = ["convert", "truncate"]


def truncate(x: Array, dtype: np.dtype[Any]) -> Array:
    """Convert floats to integers of `dtype`."""
    x = x.astype(np.float32) if x.dtype == np.float16 else x
    if dtype == np.uint32 or dtype == np.uint64:
        bits = 8 * dtype.itemsize
        half = x.dtype.type(2.0 ** (bits - 1))
        signed = np.dtype(f"int{bits}")
        low = truncate(x, signed).view(dtype)
        inside = (x >= half) & (x < 2 * half)
        high = np.where(inside, x - half, 0).astype(signed).view(dtype) + dtype.type(1 << (bits - 1))
        return np.where(inside, high, np.where(x >= half, dtype.type(0), low))
    bits = 64 if dtype == np.int64 else 32
    limit = x.dtype.type(2.0 ** (bits - 1))
    inside = (x >= -limit) & (x < limit)
    return np.where(inside, x, -limit).astype(f"int{bits}").astype(dtype, copy=False)


def convert(x: Array, dtype: np.dtype[Any]) -> Array:
    """Convert numbers or bools to `dtype`: integers wrap, floats round to nearest even or truncate to integers."""
    if x.dtype.kind == "f" and dtype.kind in "iu":
        return truncate(x, dtype)
    if x.dtype == object and dtype.kind in "iu" and any(map(is_dim, x.reshape(-1))):
        return x
    return x.astype(dtype, copy=False)

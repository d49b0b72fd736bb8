"""KV caches quantized per row: x = low + step * code, with codes of 8 or 4 bits.

A row of D components is uint8 [D * bits / 8 + 4]: the codes (4 bits: even components in the low half), then `step` and
`low` as bfloat16. `step` is rounded up and `low` down, so that the codes cover all components. The error is at most
half a step, where a step is (largest - low) / (2^bits - 1), rounded up.
"""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array

__all__ = ["pack_rows", "row_bytes", "unpack_rows"]

_CODING = 4
"""Bytes of `step` and `low` at the end of a row."""


def row_bytes(size: int, bits: int) -> int:
    """Return the bytes of a row of `size` components."""
    return size * bits // 8 + _CODING


def pack_rows(x: Array, bits: int) -> Array:
    """Quantize x [..., D] to uint8 [..., row_bytes(D)]."""
    x = x.astype(np.float32)
    most = np.float32((1 << bits) - 1)
    least = np.ascontiguousarray(x.min(axis=-1, keepdims=True)).view(np.uint32)
    low = (least + np.where(least >> 31, np.uint32(0xFFFF), np.uint32(0))) & np.uint32(0xFFFF0000)
    span = x.max(axis=-1, keepdims=True) - low.view(np.float32)
    step = (np.maximum(span, np.float32(0)) / most).view(np.uint32) + np.uint32(0xFFFF) & np.uint32(0xFFFF0000)
    divisor = np.where(step > 0, step.view(np.float32), np.float32(1))
    codes: Array = np.clip(np.rint((x - low.view(np.float32)) / divisor), 0, most).astype(np.uint8)
    if bits == 4:
        codes = codes[..., ::2] | codes[..., 1::2] << 4
    coding = (low | step >> 16).astype("<u4").view(np.uint8)
    return np.concatenate((codes, coding), axis=-1)


def unpack_rows(rows: Array, bits: int) -> Array:
    """Dequantize packed rows to float32 [..., D]."""
    codes = rows[..., :-_CODING]
    coding = np.ascontiguousarray(rows[..., -_CODING:]).view("<u4")
    if bits == 4:
        codes = np.stack((codes & 15, codes >> 4), axis=-1).reshape(*codes.shape[:-1], -1)
    low, step = (part.astype(np.uint32).view(np.float32) for part in (coding & 0xFFFF0000, coding << 16))
    y: Array = low + step * codes.astype(np.float32)
    return y

"""Pack and unpack weights of a few bits with NumPy, and dequantize them."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array

__all__ = ["PIECE", "dequantized", "pack", "unpack", "zero_points"]

PIECE = 1 << 22
"""Number of weights to unpack to float32 at a time, so that large matrices are never unpacked as a whole."""


def unpack(data: Array, bits: int) -> Array:
    """Unpack bytes [..., n] to uint8 [..., n * 8 / bits], low bits first."""
    if bits == 8:
        return data
    per = 8 // bits
    made = np.empty((*data.shape, per), np.uint8)
    for k in range(per):
        made[..., k] = (data >> np.uint8(bits * k)) & np.uint8((1 << bits) - 1)
    return made.reshape(*data.shape[:-1], data.shape[-1] * per)


def pack(values: Array, bits: int) -> Array:
    """Pack integers [..., n] of `bits` bits to bytes [..., ceil(n · bits / 8)], low bits first."""
    per = 8 // bits
    padded = np.zeros((*values.shape[:-1], -(-values.shape[-1] // per) * per), np.uint8)
    padded[..., : values.shape[-1]] = values & np.uint8((1 << bits) - 1)
    lanes = padded.reshape(*padded.shape[:-1], -1, per)
    made: Array = np.bitwise_or.reduce(lanes << (np.arange(per, dtype=np.uint8) * np.uint8(bits)), axis=-1)
    return made.astype(np.uint8)


def zero_points(zeros: Array | None, rows: int, blocks: int, bits: int) -> Array:
    """Return zero points as float32 [rows, blocks]; if there are none, half of the range as [1, 1]."""
    if zeros is None:
        return np.full((1, 1), 1 << (bits - 1), np.float32)
    if zeros.dtype == np.uint8:
        zeros = unpack(zeros.reshape(rows, -1), bits)[:, :blocks]
    return zeros.reshape(rows, blocks).astype(np.float32)


def dequantized(data: Array, scales: Array, zeros: Array, bits: int, groups: Array | None, k: int) -> Array:
    """Return (q - zero) · scale as float32 [rows, k].

    Args:
        data: [rows, blocks, bytes].
        scales: [rows, blocks].
        zeros: as returned by `zero_points`.
        groups: block of the scale and zero point of each column; None: the column's block.
    """
    rows, blocks = data.shape[:2]
    q = unpack(data, bits).astype(np.float32)
    scales = scales.reshape(rows, blocks).astype(np.float32)
    if groups is None:
        q -= zeros[:, :, None]
        q *= scales[:, :, None]
        return np.asarray(q.reshape(rows, -1)[:, :k])
    at = groups.astype(np.int64)
    zeros = np.broadcast_to(zeros, (rows, blocks))
    made: Array = (q.reshape(rows, -1)[:, :k] - zeros[:, at]) * scales[:, at]
    return made

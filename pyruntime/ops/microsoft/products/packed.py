"""Weights of a few bits in bytes: unpacked by NumPy, and packed."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array

__all__ = ["PIECE", "dequantized", "pack", "unpack", "zero_points"]

PIECE = 1 << 22
"""Weights that are unpacked to float32 at a time, so that a large matrix is never there as a whole."""


def unpack(data: Array, bits: int) -> Array:
    """[..., n] bytes to [..., n * 8 / bits] uint8, low bits first."""
    if bits == 8:
        return data
    per = 8 // bits
    made = np.empty((*data.shape, per), np.uint8)
    for k in range(per):
        made[..., k] = (data >> np.uint8(bits * k)) & np.uint8((1 << bits) - 1)
    return made.reshape(*data.shape[:-1], data.shape[-1] * per)


def pack(values: Array, bits: int) -> Array:
    """[..., n] integers of `bits` bits to [..., ceil(n · bits / 8)] bytes, low bits first."""
    per = 8 // bits
    padded = np.zeros((*values.shape[:-1], -(-values.shape[-1] // per) * per), np.uint8)
    padded[..., : values.shape[-1]] = values & np.uint8((1 << bits) - 1)
    lanes = padded.reshape(*padded.shape[:-1], -1, per)
    made: Array = np.bitwise_or.reduce(lanes << (np.arange(per, dtype=np.uint8) * np.uint8(bits)), axis=-1)
    return made.astype(np.uint8)


def zero_points(zeros: Array | None, rows: int, blocks: int, bits: int) -> Array:
    """Zero points as float32 [rows, blocks], or one for all where there are none: half of the range."""
    if zeros is None:
        return np.full((1, 1), 1 << (bits - 1), np.float32)
    if zeros.dtype == np.uint8:
        zeros = unpack(zeros.reshape(rows, -1), bits)[:, :blocks]
    return zeros.reshape(rows, blocks).astype(np.float32)


def dequantized(data: Array, scales: Array, zeros: Array, bits: int, groups: Array | None, k: int) -> Array:
    """(q - zero) · scale as float32 [rows, k].

    Args:
        data: [rows, blocks, bytes]; scales: [rows, blocks]; zeros: as `zero_points` gives them.
        groups: the block whose scale every k has, or None: its own.
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

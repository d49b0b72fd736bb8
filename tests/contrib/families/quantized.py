"""Products with packed weights."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from pyruntime.ir import Array
from tests.contrib.case import Case, Draw

ROWS = ((1,), (2,), (5,), (8,), (9,), (33,), (2, 3), (3, 1, 4), ())


def unpacked(data: Array, bits: int) -> Array:
    """[..., bytes] to [..., bytes * 8 / bits], low bits first, bit by bit."""
    lanes = np.unpackbits(data, axis=-1, bitorder="little").reshape(*data.shape, 8 // bits, bits)
    return (lanes * (1 << np.arange(bits))).sum(-1).reshape(*data.shape[:-1], -1)


def weights(
    b: Array, scales: Array, zeros: Array | None, groups: Array | None, n: int, k: int, bits: int, block: int
) -> Array:
    """float64 [n, k], written down from the specification, a block at a time."""
    count = -(-k // block)
    q = unpacked(b.reshape(n, count, -1), bits).reshape(n, -1)
    made = np.zeros((n, k))
    table = None if zeros is None or zeros.dtype != np.uint8 else unpacked(zeros.reshape(n, -1), bits)
    for column in range(k):
        at = column // block if groups is None else int(groups[column])
        if zeros is None:
            zero = np.full(n, float(1 << (bits - 1)))
        else:
            zero = table[:, at] if table is not None else zeros.reshape(n, count)[:, at].astype(np.float64)
        made[:, column] = (q[:, column] - zero) * scales.reshape(n, count)[:, at].astype(np.float64)
    return made


def draw_n_bits(rng: np.random.Generator) -> Case:
    """onnxruntime's CPU has no bfloat16, no 8 bits with float zero points, and reads g_idx with 4 bits alone."""
    dtype = rng.choice([np.float32, np.float32, np.float16, ml_dtypes.bfloat16])
    bits, block = int(rng.choice([2, 4, 4, 8])), int(rng.choice([16, 32, 32, 64, 128, 256]))
    n, k = int(rng.integers(1, 70)), int(rng.integers(1, 600))
    if rng.random() < 0.5:
        n, k = -(-n // 4) * 4, -(-k // 8) * 8
    rows = ROWS[rng.integers(len(ROWS))]
    blocks = -(-k // block)
    a = rng.standard_normal((*rows, k)).astype(dtype)
    b = rng.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8)
    scales = (rng.uniform(0.5, 1.5, (n, blocks)) * 2.0 ** (2 - bits) * rng.choice([-1, 1], (n, blocks))).astype(dtype)
    if rng.random() < 0.3:
        scales = scales.reshape(-1)
    zeros: Array | None = None
    kind = rng.choice(["none", "packed", "float", "default"])
    pitch = -(-blocks * bits // 8)
    if kind == "packed":
        zeros = rng.integers(0, 256, (n, pitch)).astype(np.uint8)
        zeros = zeros.reshape(-1) if rng.random() < 0.3 else zeros
    elif kind == "float":
        zeros = (rng.uniform(0, 1, (n, blocks)) * (1 << bits)).astype(dtype)
    elif kind == "default":
        zeros = np.full((n, pitch), {2: 0xAA, 4: 0x88, 8: 0x80}[bits], np.uint8)
    groups = rng.integers(0, blocks, k).astype(np.int32) if rng.random() < 0.15 else None
    bias = rng.standard_normal(n).astype(dtype) if rng.random() < 0.4 else None
    level = int(rng.choice([0, 1, 2, 3, 4]))
    attributes = {"K": k, "N": n, "block_size": block, "bits": bits, "accuracy_level": level}
    own = dtype is ml_dtypes.bfloat16 or dtype == ml_dtypes.bfloat16 or level >= 2 or groups is not None
    own = own or (kind == "float" and bits == 8)

    def reference(*inputs: Array) -> tuple[Array, ...]:
        y = a.astype(np.float64) @ weights(b, scales, zeros, groups, n, k, bits, block).T
        return ((y if bias is None else y + bias.astype(np.float64)).astype(dtype),)

    # Sums of k products, each a half of the range large.
    spread = float(np.sqrt(k))
    tolerance = {2: (2e-3, 1e-3 * spread), 4: (1e-4, 2e-6 * spread)}[np.dtype(dtype).itemsize]
    if dtype == ml_dtypes.bfloat16:
        tolerance = (2e-2, 1e-2 * spread)
    given = [a, b, scales, zeros, groups, bias]
    while given[-1] is None:
        given.pop()
    return Case("MatMulNBits", given, 1, attributes, reference=reference if own else None, tolerance=tolerance)


DRAWS: dict[str, Draw] = {"MatMulNBits": draw_n_bits}

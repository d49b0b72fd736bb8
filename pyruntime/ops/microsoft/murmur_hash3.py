"""MurmurHash3: 32-bit hash of each element, as used for feature hashing. Source: com.microsoft.MurmurHash3."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, DType, TensorType, are_open
from pyruntime.ops.base import Op, op

_WORDS = (DType.INT32, DType.UINT32, DType.INT64, DType.UINT64, DType.FLOAT, DType.DOUBLE)


def murmur_hash3(data: bytes, seed: int) -> int:
    """Return MurmurHash3_x86_32 (Austin Appleby, public domain) of `data`, 0 to 2³² - 1."""
    mask, state = 0xFFFFFFFF, seed & 0xFFFFFFFF
    whole = len(data) // 4 * 4
    for at in range(0, len(data), 4):
        block = int.from_bytes(data[at : at + 4], "little") * 0xCC9E2D51 & mask
        state ^= (block << 15 | block >> 17) * 0x1B873593 & mask
        if at < whole:
            state = (((state << 13 | state >> 19) & mask) * 5 + 0xE6546B64) & mask
    state ^= len(data)
    state = (state ^ state >> 16) * 0x85EBCA6B & mask
    state = (state ^ state >> 13) * 0xC2B2AE35 & mask
    return state ^ state >> 16


@op("MurmurHash3", opsets=range(1, 2), domain="com.microsoft")
class MurmurHash3(Op):
    """x: strings (hashed as UTF-8) or numbers of 4 or 8 bytes; y: uint32, or int32 if `positive` is 0, of x's shape."""

    positive: int = 1
    seed: int = 0

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        if x.dtype is not DType.STRING and x.dtype not in _WORDS:
            self.fail("strings, int32, uint32, int64, uint64, float or double", x)
        return (TensorType(DType.UINT32 if self.positive else DType.INT32, x.shape),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        items: Array = (x.astype(np.int64) if are_open(x) else x).reshape(-1)
        data = [text.encode() for text in items] if items.dtype == object else [item.tobytes() for item in items]
        found = np.array([murmur_hash3(item, self.seed) for item in data], np.uint32).reshape(x.shape)
        return (found if self.positive else found.view(np.int32),)

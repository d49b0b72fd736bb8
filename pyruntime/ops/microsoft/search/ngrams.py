"""Find tokens that would repeat an n-gram."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array

__all__ = ["repeating"]


def repeating(ids: Array, size: int) -> tuple[Array, Array]:
    """Return (rows, tokens): each token followed an earlier occurrence of the row's last size - 1 ids. ids: [B, L]."""
    length = ids.shape[1]
    if size > length:
        return np.empty(0, np.int64), np.empty(0, ids.dtype)
    grams = np.lib.stride_tricks.sliding_window_view(ids, size, axis=1)
    last = ids[:, length - size + 1 :]
    rows, starts = np.nonzero((grams[:, :, :-1] == last[:, None]).all(-1))
    return rows, grams[rows, starts, -1]

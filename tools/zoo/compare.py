"""When two results agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["RELATIVE", "complaint"]

RELATIVE = 2e-3
"""The largest difference allowed, as a part of the largest value of the tensor: float32 through some dozen layers whose
sums are split in another order."""


def complaint(got: Sequence[Any], wanted: Sequence[Any], names: Sequence[str]) -> str:
    """How outputs differ from onnxruntime's, or nothing: types and shapes; integers exactly, floats to RELATIVE."""
    for name, mine, theirs in zip(names, got, wanted, strict=True):
        x, y = np.asarray(mine), np.asarray(theirs)
        if x.shape != y.shape or x.dtype != y.dtype:
            return f"{name} is {x.dtype}{list(x.shape)}, onnxruntime says {y.dtype}{list(y.shape)}"
        if not x.size:
            continue
        if y.dtype.kind != "f":
            if not np.array_equal(x, y):
                return f"{name}: {np.count_nonzero(x != y)} of {y.size} elements differ"
            continue
        x, y = x.astype(np.float64), y.astype(np.float64)
        finite = np.isfinite(y)
        if not np.array_equal(x[~finite], y[~finite], equal_nan=True):
            return f"{name}: what is not finite differs"
        if not finite.any():
            return f"{name}: onnxruntime gives nothing finite, which says nothing"
        scale = float(np.abs(y[finite]).max())
        error = float(np.abs(x[finite] - y[finite]).max())
        if not error <= RELATIVE * max(scale, 1e-6):
            return f"{name}: differs by {error:.3g} of {scale:.3g}"
    return ""

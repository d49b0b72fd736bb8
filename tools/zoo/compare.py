"""Comparison of results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["HALF", "RELATIVE", "apart", "complaint"]

RELATIVE = 2e-3
"""The largest difference allowed, as a part of the largest value of the tensor: float32 through some dozen layers whose
sums are split in another order."""

HALF = 2e-2
"""The same for float16, which has 11 bits and is rounded after every operator or after some, as the runtime decides."""


def complaint(got: Sequence[Any], wanted: Sequence[Any], names: Sequence[str], part: float = RELATIVE) -> str:
    """Describe how outputs differ from onnxruntime's, or return ''; integers exactly, floats to `part`."""
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
        if not error <= part * max(scale, 1e-6):
            return f"{name}: differs by {error:.3g} of {scale:.3g}"
    return ""


def apart(
    got: Sequence[Any], wanted: Sequence[Sequence[Any]], plain: Sequence[Any], names: Sequence[str], part: float = 0.0
) -> tuple[str, float]:
    """Compare outputs of quantized models with the nearest of `wanted`; return a difference and its relative size.

    Rounding to steps is discontinuous: sums in another order take other steps in places, and later layers amplify that.
    So the distance (root mean square) to onnxruntime may be as large as onnxruntime's to the float32 model `plain`, and
    the distance to that model at most half as much again; or `part` of the largest value.
    """
    told, far = "", 0.0
    for i, name in enumerate(names):
        mine = np.asarray(got[i])
        theirs = np.asarray(wanted[0][i])
        if mine.shape != theirs.shape or (mine.dtype != theirs.dtype and wanted[0] is not plain):
            return f"{name} is {mine.dtype}{list(mine.shape)}, not {theirs.dtype}{list(theirs.shape)}", 1e9
        x, exact = mine.astype(np.float64), np.asarray(plain[i]).astype(np.float64)
        others = [np.asarray(w[i]).astype(np.float64) for w in wanted]
        if not x.size:
            continue
        if any(not np.array_equal(np.isfinite(x), np.isfinite(y)) for y in others[:1]):
            told = told or f"{name}: what is not finite differs"
            continue
        finite = np.isfinite(x) & np.isfinite(exact)
        scale = max(float(np.abs(exact[finite]).max(initial=0)), 1e-6)
        near = min(_rms(x - y, finite) for y in others)
        noise = max(max(_rms(y - exact, finite) for y in others), RELATIVE * scale / 4)
        if near <= part * scale:
            continue
        far = max(far, near / noise)
        if near > noise or _rms(x - exact, finite) > 1.5 * noise:
            told = told or f"{name}: {near:.3g} from onnxruntime, which is {noise:.3g} from float32, of {scale:.3g}"
    return told, far


def _rms(x: Any, where: Any) -> float:
    return float(np.sqrt(np.mean(np.square(x[where])))) if where.any() else 0.0

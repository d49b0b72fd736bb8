"""Conversions between channels-last (NHWC) and channels-first (NCHW) layouts."""

from __future__ import annotations

from pyruntime.ir import TensorType
from pyruntime.ops.decomposed import Expansion

__all__ = ["channels_first", "channels_last"]


def channels_first(body: Expansion, x: TensorType) -> TensorType:
    """Transpose [N, D1 .. Dn, C] to [N, C, D1 .. Dn]."""
    return body("Transpose", x, perm=(0, x.rank - 1, *range(1, x.rank - 1))) if x.rank > 2 else x


def channels_last(body: Expansion, x: TensorType) -> TensorType:
    """Transpose [N, C, D1 .. Dn] to [N, D1 .. Dn, C]."""
    return body("Transpose", x, perm=(0, *range(2, x.rank), 1)) if x.rank > 2 else x

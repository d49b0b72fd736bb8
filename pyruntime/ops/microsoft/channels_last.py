"""Conversions between channels after the spatial axes (NHWC) and channels before them (NCHW)."""

from __future__ import annotations

from pyruntime.ir import TensorType
from pyruntime.ops.decomposed import Expansion

__all__ = ["channels_first", "channels_last"]


def channels_first(body: Expansion, x: TensorType) -> TensorType:
    """[N, D1 .. Dn, C] as [N, C, D1 .. Dn]."""
    return body("Transpose", x, perm=(0, x.rank - 1, *range(1, x.rank - 1))) if x.rank > 2 else x


def channels_last(body: Expansion, x: TensorType) -> TensorType:
    """[N, C, D1 .. Dn] as [N, D1 .. Dn, C]."""
    return body("Transpose", x, perm=(0, *range(2, x.rank), 1)) if x.rank > 2 else x

"""Residual streams of hyper-connections: C branches of H features each."""

from __future__ import annotations

from typing import Any

from pyruntime.ir import Array, DType, TensorType
from pyruntime.ops.base import Op

__all__ = ["FLOATS", "branches_of", "check_floats"]

FLOATS = (DType.FLOAT, DType.FLOAT16, DType.BFLOAT16)


def branches_of(node: Op, x: TensorType | Array, num_branches: int) -> tuple[tuple[Any, ...], Any, Any]:
    """Return the leading dimensions, C and H of streams [.., C, H], or [.., C · H] with `num_branches` = C.

    Raises:
        InvalidGraph: the shape does not match.
    """
    if num_branches < 0:
        node.fail("num_branches >= 0", num_branches)
    if num_branches:
        if not len(x.shape) or not x.shape[-1] or x.shape[-1] % num_branches:
            node.fail(f"streams [.., C · H] of {num_branches} branches", x)
        return x.shape[:-1], num_branches, x.shape[-1] // num_branches
    if len(x.shape) < 2 or not x.shape[-2] or not x.shape[-1]:
        node.fail("streams [.., C, H], neither of them 0", x)
    return x.shape[:-2], x.shape[-2], x.shape[-1]


def check_floats(node: Op, *inputs: TensorType | None) -> None:
    """Raise InvalidGraph unless all present inputs are floats of 16 or 32 bits."""
    for x in inputs:
        if x is not None and x.dtype not in FLOATS:
            node.fail("float32, float16 or bfloat16", x)

"""The second pass of a matrix product whose k was split, and the normalisation after it, as one kernel."""

from __future__ import annotations

from pyruntime.ir import DType, multiple, upper
from pyruntime.kernels.ir.dispatch import Dispatch, Operand
from pyruntime.kernels.ir.fallback import fallback_flag
from pyruntime.kernels.ir.launch import launch
from pyruntime.kernels.rows.rows import Norm
from pyruntime.kernels.selection.lanes import shuffled
from pyruntime.target import Target

__all__ = ["sum_and_normalize"]

_TYPES = (DType.FLOAT, DType.FLOAT16)

WIDEST = 4096
"""Elements of a row that a workgroup holds in registers."""


def sum_and_normalize(
    target: Target, made: tuple[Dispatch, ...], y: Operand, p: Operand | None, norm: Norm
) -> tuple[Dispatch, ...] | None:
    """`made`, the dispatches of a matrix product, with their last one replaced; None where that adds no splits.

    Args:
        y: the normalised product [..., n]. p: the product itself, where it is wanted; y is not made of what p rounds.
        norm: without what is added; `places` moves rows of y alone.
    """
    last, n = made[-1], y.type.shape[-1]
    if not last.kernel.name.startswith("matmul_sum_splits") or not target.allows("matmul_norm"):
        return None
    if not multiple(n, 4) or upper(n) > WIDEST or y.type.dtype not in _TYPES or len(last.operands) != 2:
        return None
    parts = last.operands[0]
    quads = n // 4
    wide = 64 if quads <= 256 else 128 if quads <= 512 else 256
    bound = {"parts": parts, "scale": norm.scale, "bias": norm.bias, "places": norm.places, "y": y, "p": p}
    flags = {"RMS": norm.rms, "BIAS": norm.bias, "KEEP": p, "PLACES": norm.places}
    defines = {"WG": wide, "QUADS": -(-quads // wide), **flags, **shuffled(target, wide), **fallback_flag(target)}
    rows, size = y.type.size // n, y.type.size
    values = {"size": size, "n": n, "splits": parts.type.shape[0], "rows": rows, "epsilon": norm.epsilon}
    return (*made[:-1], launch("matmul_sum_norm", bound, target.fold(rows), defines, values, 8 * size))

"""The second pass of a matrix product whose k was dealt out, with the normalisation behind it as one kernel."""

from __future__ import annotations

from dataclasses import replace

from pyruntime.ir import DType, multiple, upper
from pyruntime.kernels.dispatch import Dispatch, Operand, Target
from pyruntime.kernels.lanes import shuffled
from pyruntime.kernels.quick import quick_flag
from pyruntime.kernels.rows import Norm
from pyruntime.kernels.template import params_of, template

__all__ = ["sum_and_normalize"]

WIDEST = 4096
"""Elements of a row that a workgroup holds in registers."""


def sum_and_normalize(
    target: Target, made: tuple[Dispatch, ...], y: Operand, p: Operand | None, norm: Norm
) -> tuple[Dispatch, ...] | None:
    """`made`, the dispatches of a matrix product, with their last one replaced; None where that adds no splits.

    Args:
        y: the normalised product, float32 [..., n]. p: the product itself, where it is wanted.
        norm: without what is added; `places` moves rows of y alone.
    """
    last, n = made[-1], y.type.shape[-1]
    if not last.kernel.name.startswith("matmul_sum_splits") or not target.allows("matmul_norm"):
        return None
    if not multiple(n, 4) or upper(n) > WIDEST or y.type.dtype is not DType.FLOAT or len(last.operands) != 2:
        return None
    parts = last.operands[0]
    quads = n // 4
    wide = 64 if quads <= 256 else 128 if quads <= 512 else 256
    bound = {"parts": parts, "scale": norm.scale, "bias": norm.bias, "places": norm.places, "y": y, "p": p}
    given = {name: operand for name, operand in bound.items() if operand is not None}
    flags = {"RMS": norm.rms, "BIAS": norm.bias is not None, "KEEP": p is not None}
    flags["PLACES"] = norm.places is not None
    kernel = template(
        "matmul_sum_norm",
        {name: operand.type.dtype for name, operand in given.items()},
        WG=wide,
        QUADS=-(-quads // wide),
        **{name: 1 for name, on in flags.items() if on},
        **shuffled(target, wide),
        **quick_flag(target),
    )
    rows = y.type.size // n
    splits = parts.type.shape[0]
    params = params_of(kernel, size=y.type.size, n=n, splits=splits, rows=rows, epsilon=norm.epsilon)
    operands = tuple(given[b.name] for b in kernel.bindings)
    joined = replace(
        last, kernel=kernel, operands=operands, grid=target.fold(rows), params=params, flops=8 * y.type.size
    )
    return (*made[:-1], joined)

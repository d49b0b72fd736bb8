"""Apply an expression to int32 sums in the epilogue of the kernel that computes them, or in a dispatch after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pyruntime.kernels import Dispatch, Operand, Role, Target, elementwise
from pyruntime.kernels.ir.elementwise_epilogue import ElementwiseEpilogue, attach_elementwise, classify

__all__ = ["finished"]


def finished(
    target: Target,
    made: tuple[Dispatch, ...],
    sums: Operand,
    y: Operand,
    name: str,
    operands: Mapping[str, Operand],
    code: str,
) -> tuple[Dispatch, ...]:
    """The dispatches of y = code(x, operands), x being the sums that `made` writes to the scratch memory `sums`.

    Args:
        operands: tensors that broadcast over y, by the names `code` uses; `code` is a WGSL expression.
    """
    placed = {n: (o, access) for n, o in operands.items() if (access := classify(o.type, y.type)) is not None}
    if len(placed) == len(operands) and made and y.type.rank > 1:
        tail = ElementwiseEpilogue(name, f"let x = in0; return {code};", "", placed, {}, sums.type.dtype, y.type.dtype)
        last, place = made[-1], (sums.role, sums.index)
        # The kernel may have another shape for the sums.
        results = (replace(o, role=y.role, index=y.index) if (o.role, o.index) == place else o for o in last.operands)
        whole = attach_elementwise(replace(last, operands=tuple(results)), tail)
        if whole is not None and len(whole.operands) <= target.limits.storage_buffers:
            return (*made[:-1], whole)
    assert sums.role is Role.SCRATCH
    return (*made, elementwise(target, name, {"x": sums, **operands}, y, code))

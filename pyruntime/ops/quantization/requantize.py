"""Apply an expression to int32 sums, in the epilogue of the kernel that computes them or in another dispatch."""

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
    """Return dispatches of y = code(x, operands) for the sums x that `made` writes to the scratch operand `sums`.

    Args:
        operands: tensors that broadcast to y, by their names in the WGSL expression `code`.
    """
    placed = {n: (o, access) for n, o in operands.items() if (access := classify(o.type, y.type)) is not None}
    if len(placed) == len(operands) and made and y.type.rank > 1:
        code_of_x = f"let x = in0; return {code};"
        epilogue = ElementwiseEpilogue(name, code_of_x, "", placed, {}, sums.type.dtype, y.type.dtype)
        last, place = made[-1], (sums.role, sums.index)
        # The kernel may use another shape for the sums.
        results = (replace(o, role=y.role, index=y.index) if (o.role, o.index) == place else o for o in last.operands)
        fused = attach_elementwise(replace(last, operands=tuple(results)), epilogue)
        if fused is not None and len(fused.operands) <= target.limits.storage_buffers:
            return (*made[:-1], fused)
    assert sums.role is Role.SCRATCH
    return (*made, elementwise(target, name, {"x": sums, **operands}, y, code))

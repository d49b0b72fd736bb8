"""Dispatches of templates: tensors by the names that the shader has for them, conditions as flags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, SupportsIndex, TypeGuard

from pyruntime.kernels.ir.dispatch import Dispatch, Operand
from pyruntime.kernels.ir.kernel import Kernel
from pyruntime.kernels.ir.template import params_of, template

__all__ = ["bind", "kernel_of", "launch"]


def kernel_of(name: str, tensors: Mapping[str, Operand | None], defines: Mapping[str, object]) -> Kernel:
    """The kernel of `shaders/<name>.wgsl` for tensors of these types.

    Args:
        defines: numbers are constants of the template; a dynamic dimension is the number seen, and the plan holds for
            it alone. All else are its conditions: those that are False or None are not met.
    """
    types = {n: x.type.dtype for n, x in tensors.items() if x is not None}
    told = {n: v for n, v in defines.items() if v is not None and v is not False}
    return template(name, types, **{n: v if _is_number(v) else 1 for n, v in told.items()})


def _is_number(value: object) -> TypeGuard[float | SupportsIndex]:
    # `isinstance(value, SupportsIndex)` looks up every attribute of a protocol: some 8 % of the time of planning.
    return isinstance(value, float) or hasattr(value, "__index__")


def bind(kernel: Kernel, tensors: Mapping[str, Operand | None]) -> tuple[Operand, ...]:
    """The operands of a kernel in the order of its bindings."""
    given = {n: x for n, x in tensors.items() if x is not None}
    return tuple(given[b.name] for b in kernel.bindings)


def launch(
    name: str,
    tensors: Mapping[str, Operand | None],
    grid: tuple[int, int, int],
    defines: Mapping[str, object],
    params: Mapping[str, Any],
    flops: int = 0,
) -> Dispatch:
    """The dispatch of a template.

    Args:
        tensors: by the names of the template; None: it has none.
        defines: see `kernel_of`.
        params: the fields of its `struct Params`.
    """
    kernel = kernel_of(name, tensors, defines)
    return Dispatch(kernel, bind(kernel, tensors), grid, params_of(kernel, **params), flops=flops)

"""Dispatches as a device can run them: single elements of types smaller than a word are made storable, and tensors that
are larger than a binding are bound in parts.

Elements smaller than a word share words, so two invocations must never write one. A kernel that calls `store_y` for an
f16, int8 or bool tensor writes 32-bit scratch memory instead, and a second dispatch packs it; of f16 only where the
device has none.

GPUs have an instruction that reads 16-bit floats (variant `half_loads`); without it the operations that take a float16
apart are half of what a product does.

WGSL lets a quotient be 2.5 units in the last place off; SwiftShader's is rounded to nearest, which
e2e/ops/products/test_quantization.py holds it to. It also runs both sides of a branch, so that what makes up for others
costs hundreds of operations for each element that is quantised, and is compiled wherever a kernel has a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyruntime.ir import DType, is_dim
from pyruntime.kernels.ir.dispatch import Dispatch, numbered, scratch
from pyruntime.kernels.map import elementwise
from pyruntime.kernels.wgsl.storage import lanes
from pyruntime.target import Target

__all__ = ["in_parts", "legalize"]

_WIDE = {"f32": DType.FLOAT, "i32": DType.INT32, "u32": DType.UINT32, "bool": DType.UINT32}

_FLAT = {
    "near_quotient": "(x: f32, y: f32) -> f32 { return x / y; }",
    "quantize": "(q: f32, zero: f32, low: f32, high: f32) -> f32 {\n"
    "  return select(clamp(round(q) + zero, low, high), low, is_nan(q));\n}",
}
"""Functions of `shaders/lib` without branches, for a device whose quotients are rounded to nearest but for literal
divisors, whose reciprocals it multiplies: `divide_rounded` stays."""


def legalize(target: Target, dispatches: Sequence[Dispatch]) -> tuple[Dispatch, ...]:
    """The dispatches of a node with every single-element store to a packed tensor sent through scratch memory.

    Scratch tensors are numbered as they appear.
    """
    made: list[Dispatch] = []
    for dispatch in dispatches:
        made += _legalize(target, dispatch)
    if target.converts_f16:
        made = list(map(_converting, made))
    if target.is_software:
        made = list(map(_flat, made))
    return numbered([in_parts(target, dispatch) for dispatch in made])


def in_parts(target: Target, dispatch: Dispatch) -> Dispatch:
    """The dispatch with tensors that are larger than a binding bound in parts of one buffer.

    Not those whose size is open: plans without such ranges take their place.
    """
    limit, every = target.limits.binding_bytes, [o.type.nbytes for o in dispatch.operands]
    sizes = [0 if is_dim(nbytes) else nbytes for nbytes in every]
    if max(sizes, default=0) <= limit:
        return dispatch
    return replace(dispatch, kernel=dispatch.kernel.in_parts(limit, sizes))


def _converting(dispatch: Dispatch) -> Dispatch:
    """The dispatch with float16 read by the device's own conversion."""
    kernel = dispatch.kernel
    return replace(dispatch, kernel=replace(kernel, converts=True)) if kernel.reads_float16 else dispatch


def _flat(dispatch: Dispatch) -> Dispatch:
    """The dispatch with functions of its own in the place of those that branch."""
    kernel = dispatch.kernel
    own = [f"fn {name}{rest}" for name, rest in _FLAT.items() if name in kernel.module.names]
    return replace(dispatch, kernel=replace(kernel, body="\n\n".join((*own, kernel.body)))) if own else dispatch


def _legalize(target: Target, dispatch: Dispatch) -> list[Dispatch]:
    kernel, operands, after = dispatch.kernel, list(dispatch.operands), []
    if target.has_f16 and target.allows("half_loads") and kernel.stores_float16:
        kernel = replace(kernel, halves=True)
    elif target.converts_f16 and kernel.stores_float16:
        kernel = replace(kernel, atomics=True)
    for i, binding in enumerate(kernel.bindings):
        if not binding.write or lanes(binding.dtype) == 1 or "store" not in kernel.accessors(binding.name):
            continue
        if (kernel.halves and binding.dtype is DType.FLOAT16) or kernel.stores_words(binding):
            continue
        packed = operands[i]
        wide_type = _WIDE[binding.dtype.compute]
        wide = scratch(wide_type, *packed.type.shape)
        operands[i] = wide
        if binding.dtype is DType.BOOL:
            body = kernel.module.renamed(f"store_{binding.name}", f"store_bool_{binding.name}").text
            helper = f"fn store_bool_{binding.name}(i: u32, v: bool) {{ store_{binding.name}(i, u32(v)); }}"
            kernel = replace(kernel, body=f"{body}\n\n{helper}")
        kernel = kernel.with_dtype(binding.name, wide_type)
        expr = "x != 0u" if binding.dtype is DType.BOOL else "x"
        after.append(elementwise(target, f"pack_{binding.dtype.onnx_name}", {"x": wide}, packed, expr))
    if not after:
        apart = any(map(kernel.stores_words, kernel.bindings))
        return [replace(dispatch, kernel=kernel, inplace=() if apart else dispatch.inplace)]
    return [replace(dispatch, kernel=kernel, operands=tuple(operands), inplace=()), *after]

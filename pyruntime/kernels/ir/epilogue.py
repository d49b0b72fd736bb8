"""Epilogues: what a kernel does to its results before it stores them, such as bias, scale, activation, residual.

Kernels offer functions that give back their first argument and do nothing else, their hooks (`Module.hooks`), and pass
every result through them. `attach` gives a hook another body and binds what that reads. The hooks there are:

    fn finish(value: vec4<T>, row: u32, col: u32) -> vec4<T>      four results of a row, counted over all batches, from
                                                                  column `col` on, which is a multiple of four where the
                                                                  number of columns is; lanes past the last are dropped
    fn finish(value: ACC, channel: u32, index: u32) -> ACC        the result at `index`, in output channel `channel`
    fn pair(in0: f32, in1: f32) -> f32                            results of columns 2j and 2j + 1, stored as column j

Of convolutions by products, rows are channels and columns pixels. A hook may give another type than it takes: sums of
bytes become floats, floats bytes. Kernels store what hooks give through accessors alone, so that they compile for any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyruntime.ir import Dim, DType, TensorType, multiple
from pyruntime.kernels.ir.dispatch import Dispatch, Operand
from pyruntime.kernels.ir.kernel import Binding
from pyruntime.kernels.wgsl.module import Function
from pyruntime.kernels.wgsl.params import Fields, extended, nbytes

__all__ = ["Epilogue", "attach", "hook_of", "linear", "scalar_fields"]


@dataclass(frozen=True, slots=True)
class Epilogue:
    """A body for a hook.

    Attributes:
        name: joins the kernel's name.
        code: WGSL statements over the hook's parameters that end in `return`.
        operands: tensors `code` reads through `load_<name>` or `load4_<name>`.
        fields, values: further uniforms and their values.
        helpers: functions `code` calls (those of `shaders/lib` need not be given).
        hook: the function.
        result: the WGSL type that the body returns, where it is not written as the hook's.
        stored: element type of the tensor that is written, where it is not the kernel's own.
        inplace: names of operands whose element i is read for the result's element i alone.
    """

    name: str
    code: str
    operands: Mapping[str, Operand] = field(default_factory=dict)
    fields: Fields = ()
    values: Mapping[str, float | int | Sequence[int]] = field(default_factory=dict)
    helpers: str = ""
    hook: str = "finish"
    result: str = ""
    stored: DType | None = None
    inplace: frozenset[str] = frozenset()


def hook_of(dispatch: Dispatch, name: str = "finish") -> Function | None:
    """The kernel's hook of this name; None where it has none, or has been given an epilogue."""
    return dispatch.kernel.module.hooks.get(name)


def scalar_fields(scalars: Mapping[str, float | int]) -> Fields:
    """Return the fields of `Params` that hold the scalars of an epilogue."""
    return tuple((n, "i32" if isinstance(v, int | Dim) else "f32") for n, v in scalars.items())


def attach(dispatch: Dispatch, epilogue: Epilogue) -> Dispatch:
    """`dispatch` with `epilogue` applied to every result before the store.

    Raises:
        ValueError: the kernel cannot take one, or has one.
    """
    kernel, hook = dispatch.kernel, hook_of(dispatch, epilogue.hook)
    if hook is None:
        raise ValueError(f"{kernel.name} takes no epilogue ('{epilogue.hook}')")
    hook = replace(hook, result=epilogue.result or hook.result)
    function = f"{epilogue.helpers}\n{hook.signature} {{\n  {epilogue.code.strip()}\n}}"
    module, params = kernel.module.with_function(hook.name, function), dispatch.params
    if epilogue.fields:
        params = extended(params, nbytes(module.params), epilogue.fields, epilogue.values)
        module = module.with_fields(epilogue.fields)
    at = next(i for i, b in enumerate(kernel.bindings) if b.write)
    reads = tuple(Binding(name, o.type.dtype) for name, o in epilogue.operands.items())
    made = replace(
        kernel,
        name=f"{kernel.name}_{epilogue.name}",
        body=module.text,
        bindings=(*kernel.bindings[:at], *reads, *kernel.bindings[at:]),
    )
    operands, inplace = dispatch.with_reads(at, list(epilogue.operands.values()))
    end = at + len(reads)
    if epilogue.stored is not None:
        made = made.with_dtype(kernel.bindings[at].name, epilogue.stored)
        typed = replace(operands[end], type=TensorType(epilogue.stored, operands[end].type.shape))
        operands, inplace = (*operands[:end], typed, *operands[end + 1 :]), ()
    listed = tuple((at + i, end) for i, name in enumerate(epilogue.operands) if name in epilogue.inplace)
    return replace(dispatch, kernel=made, operands=operands, params=params, inplace=(*listed, *inplace))


def linear(
    c: Operand | None, cols: int, alpha: float, beta: float, row_stride: int, col_stride: int
) -> Epilogue | None:
    """alpha · value + beta · c, c read at row · row_stride + col · col_stride; None where that is value.

    Integer results take alpha = beta = 1 only.
    """
    scaled = "value" if alpha == 1 else "value * params.alpha"
    fields: list[tuple[str, str]] = []
    values: dict[str, float | int | Sequence[int]] = {}
    if alpha != 1:
        fields.append(("alpha", "f32"))
        values["alpha"] = alpha
    if c is None or beta == 0:
        return None if alpha == 1 else Epilogue("scaled", f"return {scaled};", {}, tuple(fields), values)
    fields += [("c_row", "u32"), ("c_col", "u32")]
    values |= {"c_row": row_stride, "c_col": col_stride}
    if col_stride == 1 and multiple(cols, 4) and c.type.dtype.bits <= 32:
        added = "vec4<T>(load4_c((row * params.c_row + col) >> 2u))"
        kind = "vec"
    else:
        lanes = ", ".join(f"T(load_c(row * params.c_row + (col + {k}u) * params.c_col))" for k in range(4))
        added = f"vec4<T>({lanes})"
        kind = "any"
    if beta != 1:
        added = f"params.beta * {added}"
        fields.append(("beta", "f32"))
        values["beta"] = beta
    name = f"{'scaled_' if alpha != 1 else ''}{'scaled_' if beta != 1 else ''}c_{kind}"
    return Epilogue(name, f"return {scaled} + {added};", {"c": c}, tuple(fields), values)

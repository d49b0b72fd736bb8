"""Elementwise functions, with their operands, as epilogues of kernels (`kernels.ir.epilogue`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from pyruntime.ir import DType, TensorType, multiple
from pyruntime.kernels.ir.dispatch import Dispatch, Operand
from pyruntime.kernels.ir.epilogue import Epilogue, attach, hook_of, scalar_fields
from pyruntime.kernels.wgsl.library import link
from pyruntime.kernels.wgsl.module import Module

__all__ = ["Access", "ElementwiseEpilogue", "attach_elementwise", "classify", "is_long"]

_LONG = 300
"""Characters of shaders/lib that are called: rectifying and picking take less; clipping and exponents more."""

_ROWS = (("row", "u32"), ("col", "u32"))
_ELEMENT = (("channel", "u32"), ("index", "u32"))
"""Parameters of the hooks after the value."""


class Access(Enum):
    """How an operand of an elementwise epilogue lies over the result."""

    FULL = "full"
    SCALAR = "scalar"
    MINOR = "minor"
    CHANNEL = "channel"


@dataclass(frozen=True, slots=True)
class ElementwiseEpilogue:
    """An elementwise function of the result.

    Attributes:
        name: joins the kernel's.
        code: WGSL statements over `in0` (the result) and the operands' names that end in `return`.
        helpers: functions `code` calls.
        operands: tensors read, by the names `code` uses, and how each lies over the result.
        scalars: uniform numbers `code` names.
        source, to: element types of the kernel's own result, and of what becomes of it.
    """

    name: str
    code: str
    helpers: str
    operands: Mapping[str, tuple[Operand, Access]] = field(default_factory=dict)
    scalars: Mapping[str, float | int] = field(default_factory=dict)
    source: DType = DType.FLOAT
    to: DType = DType.FLOAT


def classify(operand: TensorType, result: TensorType) -> Access | None:
    """How `operand` broadcasts over `result`, where that is one of the ways that kernels know."""
    if operand.size == 1:
        return Access.SCALAR
    shape = (1,) * (result.rank - operand.rank) + operand.shape
    if shape == result.shape:
        return Access.FULL
    if result.rank and shape == (1,) * (result.rank - 1) + result.shape[-1:]:
        return Access.MINOR
    if result.rank > 2 and shape == (1, result.shape[1]) + (1,) * (result.rank - 2):
        return Access.CHANNEL
    return None


def attach_elementwise(dispatch: Dispatch, epilogue: ElementwiseEpilogue) -> Dispatch | None:
    """`dispatch` with `epilogue` applied to every result; None where the kernel has no hook for it."""
    hook = hook_of(dispatch)
    if hook is None:
        return None
    accesses = {access for _, access in epilogue.operands.values()}
    scalars = dict(epilogue.scalars)
    if hook.parameters[1:] == _ROWS and not {Access.CHANNEL, Access.MINOR} <= accesses:
        code, wgsl = _rows(dispatch, epilogue), f"vec4<{epilogue.to.compute}>"
        if Access.FULL in accesses:
            scalars["result_columns"] = _result(dispatch).shape[-1]
        if Access.CHANNEL in accesses:
            scalars["result_channels"] = _result(dispatch).shape[-2]
    elif hook.parameters[1:] == _ELEMENT and Access.MINOR not in accesses:
        code, wgsl = _element(epilogue), epilogue.to.compute
    else:
        return None
    made = Epilogue(
        epilogue.name,
        code,
        {name: operand for name, (operand, _) in epilogue.operands.items()},
        scalar_fields(scalars),
        scalars,
        _chain(epilogue),
        result=wgsl,
        stored=epilogue.to if epilogue.to is not epilogue.source else None,
        inplace=frozenset(
            n for n, (o, a) in epilogue.operands.items() if a is Access.FULL and o.type.dtype.bits == epilogue.to.bits
        ),
    )
    return attach(dispatch, made)


def _chain(epilogue: ElementwiseEpilogue) -> str:
    """`fn elementwise(...)`, the function itself, for one element."""
    arguments = [
        f"in0: {epilogue.source.compute}",
        *(f"{n}: {o.type.dtype.compute}" for n, (o, _) in epilogue.operands.items()),
    ]
    locals_ = "".join(f"let {n} = params.{n};\n  " for n in epilogue.scalars)
    head = f"fn elementwise({', '.join(arguments)}) -> {epilogue.to.compute}"
    return f"{epilogue.helpers}\n\n{head} {{\n  {locals_}{epilogue.code}\n}}\n"


def is_long(helpers: str) -> bool:
    """Whether functions that epilogues call become long where kernels have them once for each of their results."""
    own = Module.of(helpers)
    return len(link(own)) - len(own.text) > _LONG


def _result(dispatch: Dispatch) -> TensorType:
    return next(o for o, b in zip(dispatch.operands, dispatch.kernel.bindings, strict=True) if b.write).type


def _element(epilogue: ElementwiseEpilogue) -> str:
    index = {Access.FULL: "index", Access.SCALAR: "0u", Access.CHANNEL: "channel"}
    loads = [f"load_{n}({index[access]})" for n, (_, access) in epilogue.operands.items()]
    call = ", ".join(["value", *loads])
    return f"return elementwise({call});"


def _rows(dispatch: Dispatch, epilogue: ElementwiseEpilogue) -> str:
    whole = multiple(_result(dispatch).shape[-1], 4)
    full = any(access is Access.FULL for _, access in epilogue.operands.values())
    lines = ["let at = row * u32(params.result_columns) + col;"] if full else []
    lanes: list[Sequence[str]] = []
    for name, (operand, access) in epilogue.operands.items():
        start = {Access.FULL: "at", Access.MINOR: "col"}.get(access, "")
        if not start:
            index = "0u" if access is Access.SCALAR else "row % u32(params.result_channels)"
            lines.append(f"let {name} = load_{name}({index});")
            lanes.append([name] * 4)
        elif whole and operand.type.dtype.bits in (8, 16, 32):
            # A name of its own: `in0[` would say that the array is indexed directly.
            lines.append(f"let {name}_4 = load4_{name}({start} >> 2u);")
            lanes.append([f"{name}_4[{k}]" for k in range(4)])
        else:
            lanes.append([f"load_{name}({start} + {k}u)" for k in range(4)])
    calls = [f"elementwise({', '.join([f'value[{k}]', *(lane[k] for lane in lanes)])})" for k in range(4)]
    to = f"vec4<{epilogue.to.compute}>"
    lines.append(f"return {to}({', '.join(calls)});")
    return "\n  ".join(lines)

"""Tails: an elementwise function applied to a kernel's results before they are stored.

Kernels offer one of two hooks, which do nothing until a tail is attached:

    fn finish(value: vec4<T>, row: u32, col: u32) -> vec4<T>      four results of a row, counted over all batches, from
                                                                  column `col` on: a multiple of four where columns are;
                                                                  of convolutions, rows are channels, columns pixels
    fn finish(value: ACC, channel: u32, index: u32) -> ACC        the result at `index`, in output channel `channel`

A tail may give another type than it takes: sums of bytes become floats, floats bytes. Kernels store what `finish` gives
through accessors alone, so that they compile for any.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from pyruntime.ir import Dim, DType, TensorType, multiple
from pyruntime.kernels.dispatch import Dispatch, Operand
from pyruntime.kernels.kernel import Binding
from pyruntime.kernels.params import Fields, extended, parse

__all__ = ["Access", "Tail", "attach_tail", "classify", "nbytes"]

_ROWS = re.compile(r"^fn finish\(value: vec4<T>, row: u32, col: u32\) -> vec4<T> \{\s*return value;\s*\}", re.M)
_ELEMENT = re.compile(r"^fn finish\(value: ACC, channel: u32, index: u32\) -> ACC \{\s*return value;\s*\}", re.M)


class Access(Enum):
    """How an operand of a tail lies over the result."""

    FULL = "full"
    SCALAR = "scalar"
    MINOR = "minor"
    CHANNEL = "channel"


@dataclass(frozen=True, slots=True)
class Tail:
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
    """How `operand` broadcasts over `result`, where that is one of the ways tails know."""
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


def attach_tail(dispatch: Dispatch, tail: Tail) -> Dispatch | None:
    """`dispatch` with `tail` applied to every result; None where the kernel has no hook for it."""
    body = dispatch.kernel.body
    accesses = {access for _, access in tail.operands.values()}
    if _ROWS.search(body) and not {Access.CHANNEL, Access.MINOR} <= accesses:
        hook, made = _ROWS, _rows(dispatch, tail)
    elif _ELEMENT.search(body) and Access.MINOR not in accesses:
        hook, made = _ELEMENT, _element(tail)
    else:
        return None
    body = hook.sub(lambda _: made, body)
    scalars = dict(tail.scalars)
    if hook is _ROWS and _reads_full(tail):
        scalars["tail_columns"] = _columns(dispatch)
    if hook is _ROWS and Access.CHANNEL in accesses:
        scalars["tail_channels"] = _result(dispatch).shape[-2]
    fields: Fields = tuple((n, "i32" if isinstance(v, int | Dim) else "f32") for n, v in scalars.items())
    params = dispatch.params
    if fields:
        own = nbytes(parse(body))
        body = re.sub(
            r"(struct Params \{.*?)\n\}",
            lambda m: m.group(1) + "".join(f"\n  {n}: {kind}," for n, kind in fields) + "\n}",
            body,
            count=1,
            flags=re.S,
        )
        params = extended(params, own, fields, scalars)
    return _bound(dispatch, tail, body, params)


def _bound(dispatch: Dispatch, tail: Tail, body: str, params: bytes) -> Dispatch:
    """The dispatch with the tail's operands bound in front of what it writes."""
    kernel = dispatch.kernel
    at = next(i for i, b in enumerate(kernel.bindings) if b.write)
    reads = tuple(Binding(n, o.type.dtype) for n, (o, _) in tail.operands.items())
    made = replace(
        kernel,
        name=f"{kernel.name}_{tail.name}",
        body=body,
        bindings=(*kernel.bindings[:at], *reads, *kernel.bindings[at:]),
    )
    operands, own = dispatch.with_reads(at, [o for o, _ in tail.operands.values()])
    end = at + len(reads)
    if tail.to is not tail.source:
        made = made.with_dtype(kernel.bindings[at].name, tail.to)
        result = operands[end]
        typed = replace(result, type=TensorType(tail.to, result.type.shape))
        operands, own = (*operands[:end], typed, *operands[end + 1 :]), ()
    full = [
        at + i
        for i, (o, access) in enumerate(tail.operands.values())
        if access is Access.FULL and o.type.dtype.bits == tail.to.bits
    ]
    inplace = (*((i, end) for i in full), *own)
    return replace(dispatch, kernel=made, operands=operands, params=params, inplace=inplace)


def _chain(tail: Tail) -> str:
    """`fn tail(...)`, the function itself, for one element."""
    arguments = [
        f"in0: {tail.source.compute}",
        *(f"{n}: {o.type.dtype.compute}" for n, (o, _) in tail.operands.items()),
    ]
    locals_ = "".join(f"let {n} = params.{n};\n  " for n in tail.scalars)
    return f"{tail.helpers}\n\nfn tail({', '.join(arguments)}) -> {tail.to.compute} {{\n  {locals_}{tail.code}\n}}\n\n"


def _result(dispatch: Dispatch) -> TensorType:
    return next(o for o, b in zip(dispatch.operands, dispatch.kernel.bindings, strict=True) if b.write).type


def _columns(dispatch: Dispatch) -> int:
    """Columns of the result: its last dimension."""
    return _result(dispatch).shape[-1]


def _reads_full(tail: Tail) -> bool:
    return any(access is Access.FULL for _, access in tail.operands.values())


def _element(tail: Tail) -> str:
    index = {Access.FULL: "index", Access.SCALAR: "0u", Access.CHANNEL: "channel"}
    loads = [f"load_{n}({index[access]})" for n, (_, access) in tail.operands.items()]
    call = ", ".join(["value", *loads])
    to = tail.to.compute
    return f"{_chain(tail)}fn finish(value: ACC, channel: u32, index: u32) -> {to} {{\n  return tail({call});\n}}"


def _rows(dispatch: Dispatch, tail: Tail) -> str:
    whole = multiple(_columns(dispatch), 4)
    lines = ["let at = row * u32(params.tail_columns) + col;"] if _reads_full(tail) else []
    lanes: list[Sequence[str]] = []
    for name, (operand, access) in tail.operands.items():
        start = {Access.FULL: "at", Access.MINOR: "col"}.get(access, "")
        if not start:
            index = "0u" if access is Access.SCALAR else "row % u32(params.tail_channels)"
            lines.append(f"let {name} = load_{name}({index});")
            lanes.append([name] * 4)
        elif whole and operand.type.dtype.bits in (8, 16, 32):
            # A name of its own: `in0[` would say that the array is indexed directly.
            lines.append(f"let {name}_4 = load4_{name}({start} >> 2u);")
            lanes.append([f"{name}_4[{k}]" for k in range(4)])
        else:
            lanes.append([f"load_{name}({start} + {k}u)" for k in range(4)])
    calls = [f"tail({', '.join([f'value[{k}]', *(lane[k] for lane in lanes)])})" for k in range(4)]
    to = f"vec4<{tail.to.compute}>"
    lines.append(f"return {to}({', '.join(calls)});")
    code = "\n  ".join(lines)
    return f"{_chain(tail)}fn finish(value: vec4<T>, row: u32, col: u32) -> {to} {{\n  {code}\n}}"


def nbytes(fields: Fields) -> int:
    """Bytes of a struct without padding at its end."""
    size = 0
    for _, kind in fields:
        found = re.match(r"array<.*,\s*(\d+)u?\s*>", kind)
        align, width = (4, 4) if kind in ("u32", "i32", "f32") else (16, 16 * int(found.group(1)) if found else 16)
        size = -(-size // align) * align + width
    return size

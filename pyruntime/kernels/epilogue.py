"""What a matrix kernel does to its results before it stores them: bias, scale, activation, residual.

Kernels that can take an epilogue declare

    fn finish(value: vec4<T>, row: u32, col: u32) -> vec4<T> { return value; }

and pass every result through it: `value` holds the results of row `row`, counted over all batches, in columns `col` to
`col + 3`; `col` is a multiple of four where the number of columns is; lanes past the last column are dropped. `attach`
gives that function another body and binds what it reads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyruntime.ir import multiple
from pyruntime.kernels.dispatch import Dispatch, Operand
from pyruntime.kernels.kernel import Binding
from pyruntime.kernels.params import Fields, extended, parse

__all__ = ["Epilogue", "attach", "can_attach", "linear"]

_FINISH = re.compile(r"^fn finish\(value: vec4<T>, row: u32, col: u32\) -> vec4<T> \{\n(.*?)^\}", re.M | re.S)
_WORDS = {"u32": 1, "i32": 1, "f32": 1}


@dataclass(frozen=True, slots=True)
class Epilogue:
    """A body for `finish`.

    Attributes:
        name: joins the kernel's name.
        code: WGSL statements over `value`, `row`, `col` that end in `return`.
        operands: tensors `code` reads through `load_<name>` or `load4_<name>`.
        fields, values: further uniforms and their values.
        helpers: functions `code` calls (those of `shaders/lib` need not be given).
    """

    name: str
    code: str
    operands: Mapping[str, Operand] = field(default_factory=dict)
    fields: Fields = ()
    values: Mapping[str, float | int | Sequence[int]] = field(default_factory=dict)
    helpers: str = ""


def can_attach(dispatch: Dispatch) -> bool:
    """True where the kernel has a `finish` that does nothing yet."""
    found = _FINISH.search(dispatch.kernel.body)
    return found is not None and found.group(1).strip() == "return value;"


def attach(dispatch: Dispatch, epilogue: Epilogue) -> Dispatch:
    """`dispatch` with `epilogue` applied to every result before the store.

    Raises:
        ValueError: the kernel cannot take one, or has one.
    """
    if not can_attach(dispatch):
        raise ValueError(f"{dispatch.kernel.name} takes no epilogue")
    kernel = dispatch.kernel
    own = parse(kernel.body)
    body = _FINISH.sub(
        lambda _: (
            f"{epilogue.helpers}\nfn finish(value: vec4<T>, row: u32, col: u32) -> vec4<T> {{\n"
            f"  {epilogue.code.strip()}\n}}"
        ),
        kernel.body,
    )
    if epilogue.fields:
        if len(dispatch.params) != 4 * _words(own):
            raise ValueError(f"{kernel.name}: Params must fill whole vec4s to be extended")
        added = "".join(f"  {name}: {kind},\n" for name, kind in epilogue.fields)
        body = re.sub(r"(struct Params \{.*?)\n\}", lambda m: f"{m.group(1)}\n{added}}}", body, count=1, flags=re.S)
    reads = tuple(Binding(name, o.type.dtype) for name, o in epilogue.operands.items())
    at = next(i for i, b in enumerate(kernel.bindings) if b.write)
    made = replace(
        kernel,
        name=f"{kernel.name}_{epilogue.name}",
        body=body,
        bindings=(*kernel.bindings[:at], *reads, *kernel.bindings[at:]),
    )
    params = dispatch.params
    if epilogue.fields:
        params = extended(params, len(params), epilogue.fields, epilogue.values)
    operands, inplace = dispatch.with_reads(at, list(epilogue.operands.values()))
    return replace(dispatch, kernel=made, operands=operands, params=params, inplace=inplace)


def _words(fields: Fields) -> int:
    """32-bit words of a struct, without padding at its end."""
    size = 0
    for _, kind in fields:
        words = _WORDS.get(kind, 4)
        size = -(-size // words) * words + words
    return size


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

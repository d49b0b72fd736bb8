"""Generated kernels that compute every output element on its own.

One invocation makes `group(dtype)` consecutive elements, so types smaller than a word never share a store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyruntime.ir import Dim, DType
from pyruntime.kernels.ir.dispatch import Dispatch, Operand
from pyruntime.kernels.ir.fallback import fallback_flag, marked
from pyruntime.kernels.ir.indexing import (
    broadcast_shapes,
    broadcast_strides,
    collapse,
    index_code,
    index_values,
)
from pyruntime.kernels.ir.kernel import Kernel, bindings
from pyruntime.kernels.wgsl.params import Values, declare, fields_of, pack
from pyruntime.kernels.wgsl.storage import group
from pyruntime.target import WORKGROUP, Target

__all__ = ["Source", "Values", "elementwise", "for_each", "gather_map", "group_map"]

Scalars = Mapping[str, float | int]


@dataclass(frozen=True, slots=True)
class Source:
    """A tensor a generated kernel reads: the name its WGSL uses, the operand, and how it is viewed.

    `base` and `strides` are in elements, over the output's shape; default: contiguous, broadcast to it.
    """

    name: str
    operand: Operand
    base: int = 0
    strides: tuple[int, ...] | None = None

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self.operand.type.dtype


def group_map(
    target: Target,
    name: str,
    y: Operand,
    sources: Sequence[Source],
    statements: str,
    values: Values | None = None,
    helpers: str = "",
    flops: int = 0,
    fallback: str = "",
    kinds: Mapping[str, str] | None = None,
) -> Dispatch:
    """A kernel whose invocation `g` makes the `group(dtype)` elements from `group(dtype) * g` on.

    Args:
        statements: WGSL that stores group `g` of y once, e.g. `store4_y(g, a, b, c, d);`.
        sources, values, helpers, kinds: as `gather_map` has them.
        fallback: such statements that compile sooner; '': there are none.
    """
    dtype = y.type.dtype
    size, count = y.type.size, group(dtype)
    uniforms = {"size": size, **(values or {})}
    fields = fields_of(uniforms, kinds)

    def entry(name: str, statements: str) -> str:
        return (
            f"@compute @workgroup_size({WORKGROUP})\n"
            f"fn {name}(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {{\n"
            f"  let g = global_index(gid, nwg, {WORKGROUP}u);\n"
            f"  if (g * {count}u >= params.size) {{ return; }}\n"
            f"  {statements.strip()}\n}}"
        )

    main = entry("main", statements)
    if fallback and fallback_flag(target):
        main = marked(main, entry("fallback", fallback))
    body = "\n\n".join(filter(None, (declare(fields), helpers.strip(), main)))
    kernel = Kernel(name, body, bindings({s.name: s.dtype for s in sources}, {"y": dtype}))
    operands = (*(s.operand for s in sources), y)
    return Dispatch(kernel, operands, target.grid(-(-size // count)), pack(fields, uniforms), flops=flops)


def gather_map(
    target: Target,
    name: str,
    y: Operand,
    sources: Sequence[Source],
    element: str,
    values: Values | None = None,
    helpers: str = "",
    flops: int = 0,
    is_long: bool = False,
    kinds: Mapping[str, str] | None = None,
) -> Dispatch:
    """A kernel whose output element `i` is what the WGSL statements `element` return.

    Args:
        y: the tensor written; `element` returns its compute type.
        sources: tensors read through `load_<name>(index)`.
        element: body of `fn element(i: u32) -> T`; may read `params.<field>` and `params.size`.
        values: further uniforms; a float is an f32, a sequence a vec4, others are u32, if not `kinds` says what.
        helpers: WGSL functions `element` calls (those of `shaders/lib` need not be given).
        is_long: drivers take long to compile `element`: a fallback kernel has it once, in a loop.
    """
    dtype = y.type.dtype
    count = group(dtype)
    made = f"fn element(i: u32) -> {dtype.compute} {{\n  {element.strip()}\n}}"
    # The last group may be cut short: what is beyond it repeats the last element.
    elements = ", ".join(("element(i)", *(f"element(min(i + {k}u, last))" for k in range(1, count))))
    functions = "\n\n".join(filter(None, (helpers, made)))
    store = f"let i = g * {count}u;\n  let last = params.size - 1u;\n  store{count}_y(g, {elements});"
    loop = f"for (var k = 0u; k < {count}u * min(params.size, 1u); k++) {{ v[k] = element(min(i + k, last)); }}"
    in_a_loop = (
        f"let i = g * {count}u;\n  let last = params.size - 1u;\n  var v: array<{dtype.compute}, {count}>;\n  {loop}\n"
        f"  store{count}_y(g, {', '.join(f'v[{k}]' for k in range(count))});"
    )
    fallback = in_a_loop if is_long else ""
    return group_map(target, name, y, sources, store, values, functions, flops, fallback, kinds)


def for_each(
    target: Target,
    name: str,
    count: int,
    reads: Mapping[str, Operand],
    writes: Mapping[str, Operand],
    statements: str,
    values: Values | None = None,
    helpers: str = "",
) -> Dispatch:
    """A kernel whose invocation `i` < `count` runs the WGSL `statements`: for writes to places computed from `i`.

    No two invocations may write the same word, except atomically.

    Args:
        reads, writes: tensors by the names their accessors have.
        values, helpers: as `gather_map` has them.
    """
    uniforms = {"count": count, **(values or {})}
    fields = fields_of(uniforms)
    main = (
        f"@compute @workgroup_size({WORKGROUP})\n"
        "fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {\n"
        f"  let i = global_index(gid, nwg, {WORKGROUP}u);\n"
        "  if (i >= params.count) { return; }\n"
        f"  {statements.strip()}\n}}"
    )
    body = "\n\n".join(filter(None, (declare(fields), helpers.strip(), main)))
    types = ({n: o.type.dtype for n, o in operands.items()} for operands in (reads, writes))
    kernel = Kernel(name, body, bindings(*types))
    return Dispatch(kernel, (*reads.values(), *writes.values()), target.grid(count), pack(fields, uniforms))


def elementwise(
    target: Target,
    name: str,
    inputs: Mapping[str, Operand],
    y: Operand,
    expr: str,
    scalars: Scalars | None = None,
    helpers: str = "",
) -> Dispatch:
    """y = expr(inputs), elementwise with NumPy broadcasting.

    Args:
        inputs: operands by the names `expr` uses; values are in compute types (`DType.compute`).
        expr: a WGSL expression of the output's compute type, or statements that end in `return`.
        scalars: numbers that `expr` names: f32, or i32 where the value is an int.
        helpers: WGSL functions `expr` calls (those of `shaders/lib` need not be given).
    """
    size = y.type.size
    scalars = scalars or {}
    kinds = {k: "i32" if isinstance(v, int | Dim) else "f32" for k, v in scalars.items()}
    code = expr if "return" in expr else f"return {expr};"
    args = ", ".join(f"{n}: {o.type.dtype.compute}" for n, o in inputs.items())
    locals_ = "".join(f"let {k} = params.{k}; " for k in scalars)
    function = f"fn compute({args}) -> {y.type.dtype.compute} {{\n  {locals_}{code}\n}}"
    flat = all(o.type.size in (1, size) and o.type.dtype.bits in (8, 16, 32) for o in inputs.values())
    if flat and y.type.dtype.bits in (8, 16, 32):
        return _flat(target, name, inputs, y, "\n\n".join(filter(None, (helpers, function))), scalars, kinds)
    shape = broadcast_shapes(y.type.shape, *(o.type.shape for o in inputs.values()))
    views = [broadcast_strides(o.type.shape, shape) for o in inputs.values()]
    dims, collapsed = collapse(shape, *views)
    names = list(inputs)
    call = f"return compute({', '.join(f'load_{n}(at_{n})' for n in names)});"
    return gather_map(
        target,
        f"{name}_r{len(dims)}",
        y,
        [Source(n, o) for n, o in inputs.items()],
        f"{index_code(len(dims), names)}\n  {call}",
        {**index_values(dims, {n: (0, v) for n, v in zip(names, collapsed, strict=True)}), **scalars},
        "\n\n".join(filter(None, (helpers, function))),
        kinds=kinds,
    )


def _flat(
    target: Target,
    name: str,
    inputs: Mapping[str, Operand],
    y: Operand,
    functions: str,
    scalars: Scalars,
    kinds: Mapping[str, str],
) -> Dispatch:
    """The kernel for inputs that are the output's size or one element: whole groups of four, loaded as vectors."""
    size = y.type.size
    single = {n for n, o in inputs.items() if o.type.size == 1 and size != 1}
    loads = [f"let at_{n} = load_{n}(0u);" if n in single else f"let at_{n} = load4_{n}(g);" for n in inputs]
    lanes = [f"compute({', '.join(f'at_{n}' + ('' if n in single else f'[{k}]') for n in inputs)})" for k in range(4)]
    uniforms = {"size": size, **scalars}
    fields = fields_of(uniforms, kinds)
    body = "\n\n".join(
        (
            declare(fields),
            functions,
            f"@compute @workgroup_size({WORKGROUP})\n"
            "fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {\n"
            f"  let g = global_index(gid, nwg, {WORKGROUP}u);\n"
            "  if (g * 4u >= params.size) { return; }\n  "
            + "\n  ".join(loads)
            + f"\n  store4_y(g, {', '.join(lanes)});\n}}",
        )
    )
    kernel = Kernel(name, body, bindings({n: o.type.dtype for n, o in inputs.items()}, {"y": y.type.dtype}))
    last = len(inputs)
    inplace = tuple((i, last) for i, n in enumerate(inputs) if n not in single and kernel.can_share(i, last))
    return Dispatch(kernel, (*inputs.values(), y), target.grid(-(-size // 4)), pack(fields, uniforms), inplace)

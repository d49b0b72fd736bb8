"""Generated kernels that fold many elements into one: sums, extrema, arg-extrema.

A `Fold` says what is folded, in WGSL; how is one of `kernels.rows.reduce_candidates`: an invocation an output, several
that share it, and two passes where few outputs fold very many elements. Sums are blocked: an
invocation adds at most 64 elements in a row before it adds their sum to its total, so rounding errors grow with about
64 + n / (64 · lanes) instead of n.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyruntime.ir import DType, multiple, positive, upper
from pyruntime.kernels.ir.dispatch import Dispatch, Operand, scratch
from pyruntime.kernels.ir.fallback import fallback_flag, marked
from pyruntime.kernels.ir.indexing import collapse, contiguous, index_code, index_values
from pyruntime.kernels.ir.kernel import Kernel, bindings
from pyruntime.kernels.ir.template import part
from pyruntime.kernels.rows.reduce_candidates import REDUCTIONS, ReductionProblem, Strategy, joining, strategy_of
from pyruntime.kernels.selection.lanes import shuffled, workgroup_of
from pyruntime.kernels.wgsl.module import Module
from pyruntime.kernels.wgsl.params import declare, fields_of, pack
from pyruntime.kernels.wgsl.storage import group, lanes
from pyruntime.target import WORKGROUP, Target

__all__ = ["Fold", "reduction"]

TURNS = 16
"""Fours of elements that are added in a row before their sum joins the total."""


@dataclass(frozen=True, slots=True)
class Fold:
    """y = finish(combine(... combine(initial, prepare(x0, 0)), prepare(x1, 1) ...), n), in WGSL.

    `combine` must be associative and commutative up to rounding, with `initial` as its neutral element.

    Attributes:
        name: what the kernels are called.
        acc: type of the accumulator.
        initial: an expression.
        prepare: an expression of the element `x` and its number `k`.
        combine: an expression of the accumulators `a` and `b`, or statements that end in `return`.
        finish: an expression of the accumulator `a` and the number of elements `n`, or statements.
        helpers: structs and functions the others use (those of `shaders/lib` need not be given).
        state: the tensor type that holds an accumulator between two passes; None: always one pass.
        save, restore: `a` as an element of `state`, and back from `x`.
    """

    name: str
    acc: str
    initial: str
    prepare: str
    combine: str
    finish: str = "a"
    helpers: str = ""
    state: DType | None = None
    save: str = "a"
    restore: str = "x"

    def partial(self) -> Fold:
        """The first of two passes: accumulators are stored as they are."""
        return replace(self, name=f"{self.name}_part", finish=self.save)

    def rest(self) -> Fold:
        """Return the fold of the second pass, whose elements are the accumulators of the first."""
        return replace(self, name=f"{self.name}_rest", prepare=self.restore)

    def functions(self, x: DType, y: DType) -> str:
        """The fold's WGSL for elements of type `x` and results of type `y`."""

        def body(code: str) -> str:
            return code if "return" in code else f"return {code};"

        return "\n".join(
            (
                *filter(None, (self.helpers,)),
                f"fn initial() -> {self.acc} {{ {body(self.initial)} }}",
                f"fn prepare(x: {x.compute}, k: u32) -> {self.acc} {{ {body(self.prepare)} }}",
                f"fn combine(a: {self.acc}, b: {self.acc}) -> {self.acc} {{ {body(self.combine)} }}",
                f"fn finish(a: {self.acc}, n: u32) -> {y.compute} {{ {body(self.finish)} }}",
            )
        )


def reduction(target: Target, fold: Fold, y: Operand, x: Operand, axes: Sequence[int]) -> tuple[Dispatch, ...]:
    """y = `fold` of x over `axes`; y's shape without them, kept dimensions of size 1 aside.

    Args:
        axes: distinct, not negative; none: every element is a fold of its own.
    """
    shape, strides = x.type.shape, contiguous(x.type.shape)
    kept = [d for d in range(len(shape)) if d not in axes]
    outer, (outer_view,) = collapse([shape[d] for d in kept], [strides[d] for d in kept])
    inner, (inner_view,) = collapse([shape[d] for d in sorted(axes)], [strides[d] for d in sorted(axes)])
    outputs = count = 1
    for dim in outer:
        outputs *= dim
    for dim in inner:
        count *= dim
    flat = len(inner) == 1 and inner_view[0] in (0, 1)
    problem = ReductionProblem(upper(positive(outputs)), upper(count), flat, fold.state is None)
    plan = strategy_of(REDUCTIONS.choose(problem, target).way, problem, target)
    view = _View(outer, outer_view, inner, inner_view)
    if plan.segments == 1:
        return (_dispatch(target, fold, y, x, view, plan),)
    assert fold.state is not None
    # Neighbouring invocations make neighbouring outputs, so that strided folds read side by side.
    middle = scratch(fold.state, plan.segments, outputs)
    rest = _View((outputs,), (1,), (plan.segments,), (outputs,), count)
    joined = joining(problem, plan)
    last = strategy_of(REDUCTIONS.choose(joined, target).way, joined, target)
    return (
        _dispatch(target, fold.partial(), middle, x, view, plan),
        _dispatch(target, fold.rest(), y, middle, rest, last),
    )


@dataclass(frozen=True, slots=True)
class _View:
    """x as outputs times elements: collapsed dimensions and strides of both; `total` counts what a fold stands for."""

    outer: tuple[int, ...]
    outer_strides: tuple[int, ...]
    inner: tuple[int, ...]
    inner_strides: tuple[int, ...]
    total: int = 0

    @property
    def outputs(self) -> int:
        n = 1
        for dim in self.outer:
            n *= dim
        return n

    @property
    def count(self) -> int:
        n = 1
        for dim in self.inner:
            n *= dim
        return n


def _dispatch(target: Target, fold: Fold, y: Operand, x: Operand, view: _View, plan: Strategy) -> Dispatch:
    """Return the dispatch of one pass of a reduction."""
    size = view.outputs * plan.segments
    segment = -(-view.count // plan.segments)
    if plan.segments > 1:
        segment = -(-segment // 4) * 4
    vector = (
        plan.lanes > 1
        and view.inner_strides == (1,)
        and x.type.dtype.bits in (8, 16, 32)
        and all(multiple(s, 4) for s in view.outer_strides)
        and multiple(view.count, 4)
    )
    values = {
        "size": size,
        "outputs": view.outputs,
        "segment": segment,
        "count": view.count,
        "total": view.total or view.count,
        **index_values(view.outer, {"x": (0, view.outer_strides)}),
        **index_values(view.inner, {"k": (0, view.inner_strides)}, "inner"),
    }
    fields = fields_of(values)
    body = "\n\n".join(
        (
            declare(fields),
            fold.functions(x.type.dtype, y.type.dtype),
            _where(len(view.outer), len(view.inner), vector),
            _fold_vectors(fold.acc) if vector else _fold_scalars(fold.acc),
            _main(target, fold, y.type.dtype, plan.lanes),
        )
    )
    name = f"{fold.name}_{'rows' if plan.lanes > 1 else 'each'}{plan.lanes}_r{len(view.outer)}{len(view.inner)}"
    kernel = Kernel(name, body, bindings({"x": x.type.dtype}, {"y": y.type.dtype}))
    per = 1 if plan.lanes > 1 or lanes(y.type.dtype) == 1 else group(y.type.dtype)
    together = max(1, WORKGROUP // plan.lanes)
    grid = target.fold(positive(-(-size // together))) if plan.lanes > 1 else target.grid(-(-size // per))
    return Dispatch(kernel, (x, y), grid, pack(fields, values), flops=x.type.size)


def _where(outer_rank: int, inner_rank: int, vector: bool) -> str:
    """`start(o)`: where output o's elements begin; `place(k)`: how far from there element k is."""
    start = f"fn start(o: u32) -> u32 {{\n  {index_code(outer_rank, ['x'], 'o')}\n  return at_x;\n}}"
    if vector:
        return start
    if inner_rank == 1:
        return f"{start}\n\nfn place(k: u32) -> u32 {{ return k * params.k_strides_0[0]; }}"
    return f"{start}\n\nfn place(k: u32) -> u32 {{\n  {index_code(inner_rank, ['k'], 'k', 'inner')}\n  return at_k;\n}}"


def _fold_head(acc: str) -> str:
    """The beginning of `fold`, which gives the partial result of one of an output's segments."""
    return f"""fn fold(i: u32, lane: u32, lanes: u32, turns: u32) -> {acc} {{
  let s = i / params.outputs;
  let o = i - s * params.outputs;
  let base = start(o);
  let last = min((s + 1u) * params.segment, params.count);
  var total = initial();"""


def _fold_scalars(acc: str) -> str:
    """Blocks of four loads at a time, so that they are on their way together."""
    loads = "\n".join(f"      let x{c} = load_x(base + place(k + {c}u * lanes));" for c in range(4))
    joins = "\n".join(f"      part = combine(part, prepare(x{c}, k + {c}u * lanes));" for c in range(4))
    return f"""{_fold_head(acc)}
  var k = s * params.segment + lane;
  while (k + 3u * lanes < last) {{
    var part = initial();
    for (var n = 0u; n < turns; n++) {{
      if (k + 3u * lanes >= last) {{ break; }}
{loads}
{joins}
      k += 4u * lanes;
    }}
    total = combine(total, part);
  }}
  for (var n = 0u; n < 3u; n++) {{
    if (k >= last) {{ break; }}
    total = combine(total, prepare(load_x(base + place(k)), k));
    k += lanes;
  }}
  return total;
}}"""


def _fold_vectors(acc: str) -> str:
    four = "\n".join(f"      part = combine(part, prepare(v[{c}], k + {c}u));" for c in range(4))
    return f"""{_fold_head(acc)}
  var k = s * params.segment + 4u * lane;
  while (k < last) {{
    var part = initial();
    for (var n = 0u; n < turns; n++) {{
      if (k >= last) {{ break; }}
      let v = load4_x((base + k) >> 2u);
{four}
      k += 4u * lanes;
    }}
    total = combine(total, part);
  }}
  return total;
}}"""


def _main(target: Target, fold: Fold, y: DType, lanes: int) -> str:
    """The entry point, and how invocations that share an output reduce their partial results."""
    if lanes == 1:
        return _invocation_main(y)
    joins = shuffled(target, lanes)
    whole = _shuffling_main(fold, lanes, joins) if joins else _workgroup_main(fold.acc, lanes)
    return marked(whole, _fallback(fold.acc)) if fallback_flag(target) else whole


def _fallback(acc: str) -> str:
    """A workgroup's outputs one after the other, each by all of it, by loops whose counts compilers do not know."""
    return f"""var<workgroup> folded: array<{acc}, {WORKGROUP}>;

@compute @workgroup_size({WORKGROUP})
fn fallback(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) nwg: vec3<u32>,
  @builtin(local_invocation_index) place: u32,
) {{
  let workgroups = nwg.x * nwg.y * nwg.z;
  let each = (params.size + workgroups - 1u) / workgroups;
  let first = workgroup_index(wid, nwg) * each;
  for (var i = first; i < min(first + each, params.size); i++) {{
    folded[place] = fold(i, place, {WORKGROUP}u, {TURNS}u * min(params.size, 1u));
    workgroupBarrier();
    for (var step = {WORKGROUP // 2}u * min(params.size, 1u); step > 0u; step >>= 1u) {{
      if (place < step) {{ folded[place] = combine(folded[place], folded[place + step]); }}
      workgroupBarrier();
    }}
    if (place == 0u) {{ store_y(i, finish(folded[0], params.total)); }}
    workgroupBarrier();
  }}
}}"""


def _invocation_main(y: DType) -> str:
    """One invocation an output, or the outputs that share a word of a smaller type."""
    count = 1 if lanes(y) == 1 else group(y)
    store = f"store{count if count > 1 else ''}_y"
    values = ", ".join(f"finish(fold(g * {count}u + {k}u, 0u, 1u, {TURNS}u), params.total)" for k in range(count))
    return f"""@compute @workgroup_size({WORKGROUP})
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {{
  let g = global_index(gid, nwg, {WORKGROUP}u);
  if (g * {count}u >= params.size) {{ return; }}
  {store}(g, {values});
}}"""


def _workgroup_main(acc: str, lanes: int) -> str:
    """`lanes` invocations an output: every one folds its share, the shares are folded in a tree."""
    levels = []
    step = lanes // 2
    while step:
        levels.append(f"  if (lane < {step}u) {{ parts[place] = combine(parts[place], parts[place + {step}u]); }}")
        levels.append("  workgroupBarrier();")
        step //= 2
    return "\n".join(
        (
            f"var<workgroup> parts: array<{acc}, {workgroup_of(lanes)}>;",
            "",
            *_shared_head(lanes),
            f"  parts[place] = fold(min(i, params.size - 1u), lane, {lanes}u, {TURNS}u);",
            "  workgroupBarrier();",
            *levels,
            "  if (lane == 0u && i < params.size) { store_y(i, finish(parts[place], params.total)); }",
            "}",
        )
    )


def _shared_head(lanes: int) -> tuple[str, ...]:
    """The entry point as far as output `i` and the invocation's `lane` among those that share it."""
    wide = workgroup_of(lanes)
    return (
        f"@compute @workgroup_size({wide})",
        "fn main(",
        "  @builtin(workgroup_id) wid: vec3<u32>,",
        "  @builtin(num_workgroups) nwg: vec3<u32>,",
        "  @builtin(local_invocation_index) place: u32,",
        ") {",
        f"  let first = workgroup_index(wid, nwg) * {wide // lanes}u;",
        "  if (first >= params.size) { return; }",
        f"  let i = first + place / {lanes}u;",
        f"  let lane = place % {lanes}u;",
    )


def _shuffling_main(fold: Fold, lanes: int, joins: dict[str, int]) -> str:
    """The same tree by `shaders/parts/lanes.wgsl`."""
    return "\n".join(
        (
            f"alias Share = {fold.acc};",
            f"const WG: u32 = {workgroup_of(lanes)}u;",
            f"const LANES: u32 = {lanes}u;",
            "",
            "fn combine_shares(a: Share, b: Share) -> Share { return combine(a, b); }",
            "",
            f"fn moved(share: Share, by: u32) -> Share {{ return {_moved(fold)}; }}",
            "",
            part("lanes", MOVED=1, **joins),
            "",
            *_shared_head(lanes),
            f"  let total = reduced_lanes(fold(min(i, params.size - 1u), lane, LANES, {TURNS}u), place);",
            "  if (lane == 0u && i < params.size) { store_y(i, finish(total, params.total)); }",
            "}",
        )
    )


def _moved(fold: Fold) -> str:
    """The accumulator `share` of the invocation `by` places further: shuffles take numbers and vectors of them."""
    members = Module.of(fold.helpers).structs.get(fold.acc)
    if members is None:
        return "subgroupShuffleDown(share, by)"
    return f"{fold.acc}({', '.join(f'subgroupShuffleDown(share.{name}, by)' for name, _ in members)})"

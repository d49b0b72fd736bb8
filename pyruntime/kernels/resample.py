"""Resampling along axes by tables: nearest neighbours are moved, weighted sums computed in float32."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pyruntime.ir import Array, Constant, DType, TensorType, hint, upper
from pyruntime.kernels.ir.dispatch import Dispatch, Operand, constant, scratch
from pyruntime.kernels.ir.indexing import contiguous
from pyruntime.kernels.map import Source, gather_map
from pyruntime.kernels.wgsl.storage import bits_type
from pyruntime.target import Target

__all__ = ["AxisTable", "Steps", "interpolate", "resample"]

FUSED = 16
"""Products of terms up to this are summed in one dispatch; larger ones an axis at a time."""

OUTSIDE = 0xFFFFFFFF
"""Index of an output that is the extrapolation value."""


@dataclass(frozen=True, slots=True)
class AxisTable:
    """Along `axis`, output o is sum over t of weight[o, t] * x[index[o, t]].

    Attributes:
        index: int64 [outputs, terms]; -1: the output is the extrapolation value.
        weight: floats of that shape; None: one term of weight 1.
    """

    axis: int
    index: Array = field(compare=False)
    weight: Array | None = field(compare=False, default=None)

    @property
    def count(self) -> int:
        """Number of input elements that an output element is the sum of."""
        return int(self.index.shape[1])


@dataclass(frozen=True, slots=True)
class Steps:
    """Along `axis`, output o is what lies at (o * a + b) / c in x: exact, for sizes that are known when a plan runs.

    Attributes:
        c: above 0. length: of x.
        mode: 'nearest', the element at the floor of it; 'linear' or 'cubic', a weighted sum of those around it.
        cubic: the coefficient of Keys' kernel.
        half: elements on each side of it that have weights.
        squeeze: numbers u, v where distances are multiplied by u / v; None: they are not.
        normalised: weights are divided by their sum. inside: elements beyond the ends have none; else those at the ends
            stand for them.
        rounded: 'nearest' alone; a, b and c are `length`, 0 and the outputs, and the quotient is that of float32,
            o / (c / a): where it is a whole number it may be the one before. a * c is below 2^23, both at most 2^13.
    """

    axis: int
    a: int
    b: int
    c: int
    length: int
    mode: str
    cubic: float = -0.75
    half: int = 1
    squeeze: tuple[int, int] | None = None
    normalised: bool = False
    inside: bool = False
    rounded: bool = False

    @property
    def is_weighted(self) -> bool:
        """Return whether an output element is a weighted sum of input elements, not one of them."""
        return self.mode != "nearest"


def interpolate(target: Target, y: Operand, x: Operand, steps: Sequence[Steps]) -> tuple[Dispatch, ...]:
    """y = x with each step's axis resampled; sums of integers are rounded and saturated."""
    if math.prod(2 * upper(s.half) for s in steps if s.is_weighted) <= FUSED:
        return (_interpolate(target, y, x, steps),)
    made = []
    source, shape = x, list(x.type.shape)
    for number, step in enumerate(steps):
        shape[step.axis] = y.type.shape[step.axis]
        result = y if number == len(steps) - 1 else scratch(DType.FLOAT, *shape)
        made.append(_interpolate(target, result, source, [step]))
        source = result
    return tuple(made)


def _interpolate(target: Target, y: Operand, x: Operand, steps: Sequence[Steps]) -> Dispatch:
    where = _Where(x.type.shape, y.type.shape, [], [s.axis for s in steps])
    weighted = any(s.is_weighted for s in steps)
    dtype = y.type.dtype if weighted else bits_type(y.type.dtype)
    values, signs = dict[str, Any](where.values), dict[str, str]()
    lines = list(where.lines)
    for k, step in enumerate(steps):
        signed = {"a": step.a, "b": step.b, "c": step.c, "last": step.length - 1}
        values[f"along{k}"] = where.strides[step.axis]
        lines.append(f"let n{k} = i32(o{k}) * params.a{k} + params.b{k};")
        lines.append(f"var low{k} = floor_divided(n{k}, params.c{k});")
        if step.rounded:
            is_whole = f"low{k} > 0 && low{k} * params.c{k} == n{k}"
            before = f"rounds_down(u32(low{k}), u32(params.a{k}), u32(params.c{k}))"
            lines.append(f"if ({is_whole}) {{ low{k} -= select(0, 1, {before}); }}")
        if step.is_weighted:
            if step.squeeze is not None:
                signed |= {"half": step.half, "up": step.squeeze[0], "down": step.squeeze[1]}
            if step.mode == "cubic":
                values[f"cubic{k}"] = float(step.cubic)
            lines.append(f"let part{k} = f32(n{k} - low{k} * params.c{k}) / f32(params.c{k});")
            lines += _total(step, k)
        else:
            lines.append(f"let i{k} = u32(clamp(low{k}, 0, params.last{k})) * params.along{k};")
        values |= {f"{name}{k}": value for name, value in signed.items()}
        signs |= {f"{name}{k}": "i32" for name in signed}
    loops = [k for k, step in enumerate(steps) if step.is_weighted]
    at = " + ".join(["at", *(f"i{k}" for k in range(len(steps)))])
    if weighted:
        lines.append("var sum = 0.0;")
        for k in loops:
            lines.append(_loop(steps[k], k))
            lines.append(f"let w{k} = {_weight(steps[k], k)}{f' / total{k}' * steps[k].normalised};")
            lines.append(f"let i{k} = u32(clamp(low{k} + t{k}, 0, params.last{k})) * params.along{k};")
        lines.append(f"sum += {' * '.join(f'w{k}' for k in loops)} * f32(load_x({at}));")
        lines += ["}" * len(loops), f"return {_stored('sum', dtype)};"]
    else:
        lines.append(f"return load_x({at});")
    kinds = "_".join(_kind(step) for step in steps)
    sources = [Source("x", x if weighted else _as(x, dtype))]
    flops = 2 * y.type.size * math.prod(2 * hint(steps[k].half) for k in loops) if weighted else 0
    result = y if weighted else _as(y, dtype)
    name, code = f"interpolate_{kinds}_{where.name}", "\n  ".join(lines)
    helpers = _HELPERS + (_ROUNDS if any(step.rounded for step in steps) else "")
    return gather_map(target, name, result, sources, code, values, helpers, flops, is_long=True, kinds=signs)


def _kind(step: Steps) -> str:
    kind = step.mode + "_rounded" * step.rounded + "_squeezed" * (step.squeeze is not None)
    return kind + "_sum" * step.normalised + "_inside" * step.inside


def _loop(step: Steps, k: int) -> str:
    half = step.half if step.squeeze is None else f"params.half{k}"
    return f"for (var t{k} = 1 - {half}; t{k} <= {half}; t{k}++) {{"


def _weight(step: Steps, k: int) -> str:
    """WGSL of the weight of element t<k>, counted from the first, before weights are divided by their sum."""
    distance = f"abs(f32(t{k}) - part{k})"
    if step.squeeze is not None:
        distance += f" * f32(params.up{k}) / f32(params.down{k})"
    weight = f"max(0.0, 1.0 - {distance})" if step.mode == "linear" else f"keys({distance}, params.cubic{k})"
    there = f"low{k} + t{k} >= 0 && low{k} + t{k} <= params.last{k}"
    return f"select(0.0, {weight}, {there})" if step.inside else weight


def _total(step: Steps, k: int) -> list[str]:
    """WGSL of the sum of the weights, where they are divided by it."""
    if not step.normalised:
        return []
    return [
        f"var whole{k} = 0.0;",
        f"{_loop(step, k)} whole{k} += {_weight(step, k)}; }}",
        f"let total{k} = select(whole{k}, 1.0, whole{k} == 0.0);",
    ]


_HELPERS = """fn keys(d: f32, a: f32) -> f32 {
  let near = ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0;
  let far = ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a;
  return select(select(0.0, far, d < 2.0), near, d <= 1.0);
}

fn floor_divided(a: i32, b: i32) -> i32 {
  let q = a / b;
  return select(q, q - 1, q * b > a);
}"""

# outputs / length is (m + r / length) / 2^t with m of 24 bits, and float32 has m or m + 1. With m + 1 the divisor is
# too large, and the quotient q, 2^k <= q < 2^(k + 1), ends below q where that moves it by more than half of what is
# between q and the float32 number before: 2^(k - 23), or 2^(k - 24) where q is a power of two.
_ROUNDS = """
fn rounds_down(q: u32, length: u32, outputs: u32) -> bool {
  var m = outputs / length;
  var r = outputs % length;
  for (var bits = 0; bits < 40 && m < 0x800000u; bits++) {
    m = 2u * m + select(0u, 1u, 2u * r >= length);
    r = 2u * r - select(0u, length, 2u * r >= length);
  }
  if (2u * r < length || (2u * r == length && (m & 1u) == 0u)) { return false; }
  m += 1u;
  let spare = select(12u, 13u, (q & (q - 1u)) == 0u) - firstLeadingBit(q);
  return ((q * (length - r)) << spare) > length * (m >> 12u) + ((length * (m & 4095u)) >> 12u);
}"""


def resample(
    target: Target, y: Operand, x: Operand, tables: Sequence[AxisTable], extrapolation: float
) -> tuple[Dispatch, ...]:
    """y = x with each table's axis resampled; weighted sums of integers are rounded and saturated."""
    if all(t.weight is None for t in tables):
        return (_moved(target, y, x, tables, extrapolation),)
    if math.prod(t.count for t in tables) <= FUSED:
        return (_weighted(target, y, x, tables, extrapolation),)
    # Axes that shrink most come first: what follows has the least to do.
    ordered = sorted(tables, key=lambda t: t.index.shape[0] / max(x.type.shape[t.axis], 1))
    steps = []
    source, shape = x, list(x.type.shape)
    for number, table in enumerate(ordered):
        shape[table.axis] = table.index.shape[0]
        last = number == len(ordered) - 1
        result = y if last else scratch(DType.FLOAT, *shape)
        # Outside the crop along any axis the output is the extrapolation value; along a later one it becomes so then.
        steps.append(_weighted(target, result, source, [table], extrapolation))
        source = result
    return tuple(steps)


def _moved(target: Target, y: Operand, x: Operand, tables: Sequence[AxisTable], extrapolation: float) -> Dispatch:
    """One term of weight 1 along every axis: bits are moved, whatever they mean."""
    dtype = y.type.dtype
    bits = bits_type(dtype)
    where = _Where(x.type.shape, y.type.shape, tables)
    value = Constant.from_array(_scalar(extrapolation, dtype), dtype).raw()
    words = int.from_bytes(bytes(value), "little")
    values = {**where.values, "outside_low": words & 0xFFFFFFFF, "outside_high": words >> 32}
    outside = "vec2<u32>(params.outside_low, params.outside_high)" if bits.is_wide else "params.outside_low"
    lines = [
        *where.lines,
        *(f"let i{k} = load_index(first{k});" for k in range(len(tables))),
        f"if ({where.any_outside}) {{ return {outside}; }}",
        f"return load_x({where.sum_of_indices});",
    ]
    sources = [Source("x", _as(x, bits)), Source("index", where.index())]
    return gather_map(target, f"resample_nearest_{where.name}", _as(y, bits), sources, "\n  ".join(lines), values)


def _weighted(target: Target, y: Operand, x: Operand, tables: Sequence[AxisTable], extrapolation: float) -> Dispatch:
    """The sum over all terms of all axes."""
    where = _Where(x.type.shape, y.type.shape, tables)
    values = {**where.values, "extrapolation": float(extrapolation)}
    lines = [*where.lines, "var sum = 0.0;"]
    for k, table in enumerate(tables):
        if table.count <= 4:
            lines.append(f"for (var t{k} = 0u; t{k} < {table.count}u; t{k}++) {{")
        else:
            lines.append(
                f"for (var t{k} = 0u; t{k} < 0x10000000u; t{k}++) {{ if (t{k} >= params.terms{k}) {{ break; }}"
            )
        lines.append(f"let i{k} = load_index(first{k} + t{k}); let w{k} = load_weight(first{k} + t{k});")
    weights = " * ".join(f"w{k}" for k in range(len(tables)))
    result = _stored("params.extrapolation", y.type.dtype)
    lines.append(f"if ({where.any_outside}) {{ return {result}; }}")
    lines.append(f"sum += {weights} * f32(load_x({where.sum_of_indices}));")
    lines.append("}" * len(tables))
    lines.append(f"return {_stored('sum', y.type.dtype)};")
    name = "resample_" + "_".join(str(t.count) if t.count <= 4 else "n" for t in tables) + f"_{where.name}"
    sources = [Source("x", x), Source("index", where.index()), Source("weight", where.weight())]
    flops = 2 * y.type.size * math.prod(t.count for t in tables)
    return gather_map(target, name, y, sources, "\n  ".join(lines), values, flops=flops, is_long=True)


class _Where:
    """WGSL that finds an output's place: `at` for what no table maps, `first<k>` in the tables of the others."""

    def __init__(
        self, source: Sequence[int], result: Sequence[int], tables: Sequence[AxisTable], computed: Sequence[int] = ()
    ) -> None:
        """`computed`: axes without a table, whose place in the output is `o<k>`."""
        self.tables = tables
        self.strides = contiguous(source)
        by_axis = {axis: k for k, axis in enumerate(computed or [t.axis for t in tables])}
        # Runs of axes that no table maps are one dimension.
        dims: list[tuple[int, int, int]] = []
        for axis, size in enumerate(result):
            if axis in by_axis:
                dims.append((size, self.strides[axis], by_axis[axis]))
            elif dims and dims[-1][2] < 0:
                dims[-1] = (dims[-1][0] * size, self.strides[axis], -1)
            else:
                dims.append((size, self.strides[axis], -1))
        self.lines, self.values = ["var rest = i;", "var at = 0u;"], dict[str, int]()
        base = [0]
        for table in tables:
            base.append(base[-1] + int(table.index.size))
        for d in reversed(range(len(dims))):
            size, stride, k = dims[d]
            self.lines.append(f"let c{d} = rest % params.dim{d};")
            self.lines.append(f"rest = rest / params.dim{d};")
            self.values[f"dim{d}"] = size
            if k < 0:
                self.lines.append(f"at += c{d} * params.stride{d};")
                self.values[f"stride{d}"] = stride
            elif computed:
                self.lines.append(f"let o{k} = c{d};")
            else:
                self.lines.append(f"let first{k} = params.base{k} + c{d} * params.terms{k};")
                self.values |= {f"base{k}": base[k], f"terms{k}": tables[k].count}
        self.name = "".join("k" if k < 0 else "r" for _, _, k in dims)
        self.any_outside = " || ".join(f"i{k} == {OUTSIDE}u" for k in range(len(tables)))
        self.sum_of_indices = " + ".join(["at", *(f"i{k}" for k in range(len(tables)))])

    def index(self) -> Operand:
        """Return the indices of all tables, one after the other, as offsets in elements of x."""
        import numpy as np

        scaled = [np.where(t.index < 0, OUTSIDE, t.index * self.strides[t.axis]) for t in self.tables]
        flat = np.concatenate([s.reshape(-1) for s in scaled]).astype(np.uint32)
        return constant(Constant.from_array(flat))

    def weight(self) -> Operand:
        """Return the weights of all tables, one after the other."""
        import numpy as np

        every = [np.ones(t.index.shape) if t.weight is None else t.weight for t in self.tables]
        return constant(Constant.from_array(np.concatenate([w.reshape(-1) for w in every]).astype(np.float32)))


def _stored(value: str, dtype: DType) -> str:
    """WGSL of the f32 expression `value` as an element: integers rounded half to even and saturated."""
    if dtype.is_float:
        return value
    if dtype is DType.BOOL:
        return f"({value} > 0.5)"
    low, high = map(float, dtype.limits)
    return f"{dtype.compute}(clamp(round({value}), {low}, {high}))"


def _scalar(value: float, dtype: DType) -> Array:
    import numpy as np

    return np.asarray([value]).astype(dtype.numpy)


def _as(operand: Operand, dtype: DType) -> Operand:
    return Operand(operand.role, operand.index, TensorType(dtype, operand.type.shape), operand.data)

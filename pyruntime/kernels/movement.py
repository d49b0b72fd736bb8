"""Kernels that move elements without looking at them.

They move *units*: the widest pieces, of up to 128 bits, of which every contiguous run is a whole number. One kernel so
serves all element types, and float16 rows of even length travel as words or vectors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyruntime.ir import DType, TensorType, divisor, multiple
from pyruntime.kernels.ir.dispatch import Dispatch, Operand
from pyruntime.kernels.ir.indexing import collapse, index_code, index_values
from pyruntime.kernels.map import Source, Values, gather_map, group_map
from pyruntime.kernels.wgsl.storage import bits_type, group
from pyruntime.target import Target

__all__ = ["Unit", "fill", "move", "strided_copy"]

VECTOR_BITS = 128
"""Bits of vec4<u32>, the widest access WGSL has."""


@dataclass(frozen=True, slots=True)
class Unit:
    """What one load or store moves: `width` consecutive elements of `bits / width` bits.

    A unit of 2 to 64 bits is an element of the unsigned type of its size; one of 128 is a vec4<u32>.
    """

    width: int
    bits: int

    @staticmethod
    def widest(dtype: DType, *runs: int) -> Unit:
        """The widest unit of which every run (a length or an offset in elements) is a whole number."""
        common = math.gcd(*map(divisor, runs))
        width, bits = 1, dtype.bits
        while bits < VECTOR_BITS and common % (2 * width) == 0:
            width, bits = 2 * width, 2 * bits
        return Unit(width, bits)

    @property
    def is_vector(self) -> bool:
        """True if a unit is a vec4<u32>."""
        return self.bits == VECTOR_BITS

    @property
    def is_words(self) -> bool:
        """True where two units never share a word, so that any invocation may store any unit."""
        return self.bits >= 32

    @property
    def dtype(self) -> DType:
        """The element type of arrays of this unit; UINT32 (four of them) for vectors."""
        return DType.UINT32 if self.is_vector else _UNSIGNED[self.bits]

    @property
    def value(self) -> str:
        """The WGSL type of one unit."""
        return "vec4<u32>" if self.is_vector else self.dtype.compute

    @property
    def load(self) -> str:
        """The accessor that reads unit i of binding x is `<load>_x(i)`."""
        return "load4" if self.is_vector else "load"

    def store(self, name: str, at: str, value: str) -> str:
        """The WGSL statement that stores the variable `value` as unit `at` of binding `name` (whole words only)."""
        if self.is_vector:
            return f"store4_{name}({at}, {value}.x, {value}.y, {value}.z, {value}.w);"
        return f"store_{name}({at}, {value});"

    def splat(self, element: str) -> str:
        """The WGSL unit that holds the element `element` (an expression of the unsigned type's value) throughout."""
        bits = self.bits // self.width
        if bits == 64:
            return f"vec4<u32>({element}, {element})" if self.is_vector else element
        word = min(self.bits, 32)
        repeated = sum(1 << k for k in range(0, word, bits))
        one = element if repeated == 1 else f"({element} * {repeated}u)"
        return {64: f"vec2<u32>({one})", 128: f"vec4<u32>({one})"}.get(self.bits, one)

    def view(self, operand: Operand) -> Operand:
        """The operand as a flat array of this unit, the last one filled up with padding."""
        size = -(-operand.type.size // self.width) * (4 if self.is_vector else 1)
        return Operand(operand.role, operand.index, TensorType(self.dtype, (size,)), operand.data)


_UNSIGNED = {bits_type(d).bits: bits_type(d) for d in DType if d.compute}


def move(
    target: Target,
    name: str,
    unit: Unit,
    y: Operand,
    sources: Mapping[str, Operand],
    element: str,
    values: Values | None = None,
    others: Mapping[str, Operand] | None = None,
    helpers: str = "",
    kinds: Mapping[str, str] | None = None,
) -> Dispatch:
    """A kernel whose output unit `i` is what the WGSL statements `element` return.

    Args:
        sources: tensors units are read from, by `<unit.load>_<name>(index of the unit)`.
        others: tensors read in their own types (indices), by `load_<name>(i)`.
        element: body of `fn element(i: u32) -> unit.value`.
        values, kinds: as `gather_map` has them; counted in units.

    Raises:
        ValueError: sources whose elements have another number of bits than those of y.
    """
    if any(o.type.dtype.bits != y.type.dtype.bits for o in sources.values()):
        raise ValueError(f"{name} moves elements as they are: {[str(o.type) for o in sources.values()]} to {y.type}")
    bound = [Source(n, unit.view(o)) for n, o in sources.items()]
    bound += [Source(n, o) for n, o in (others or {}).items()]
    name = f"{name}_{unit.bits}"
    if not unit.is_vector:
        return gather_map(target, name, unit.view(y), bound, element, values, helpers, kinds=kinds)
    functions = f"{helpers}\n\nfn element(i: u32) -> vec4<u32> {{\n  {element.strip()}\n}}"
    store = "let v = element(g);\n  store4_y(g, v.x, v.y, v.z, v.w);"
    return group_map(target, name, unit.view(y), bound, store, values, functions, kinds=kinds)


def strided_copy(target: Target, name: str, y: Operand, x: Operand, base: int, strides: Sequence[int]) -> Dispatch:
    """y[c] = x[base + sum(c[d] * strides[d])]: Transpose, Slice, Expand and similar, for every element type."""
    dtype = y.type.dtype
    dims, (view,) = collapse(y.type.shape, strides)
    if len(dims) == 1 and view == (1,) and base == 0:
        unit = Unit.widest(dtype)
        dims = (-(-dims[0] // unit.width),)
    elif view[-1] == 1:
        unit = Unit.widest(dtype, dims[-1], base, *view[:-1])
        dims = (*dims[:-1], dims[-1] // unit.width)
        base, view = base // unit.width, (*(v // unit.width for v in view[:-1]), 1)
    else:
        unit = Unit(1, dtype.bits)
    dims, (view,) = collapse(dims, view)
    rank = len(dims)
    values = index_values(dims, {"x": (base, view)})
    count = group(unit.dtype)
    if unit.is_vector or not multiple(dims[-1], count):
        element = f"{index_code(rank, ['x'])}\n  return {unit.load}_x(at_x);"
        return move(target, f"{name}_r{rank}", unit, y, {"x": x}, element, values)
    loads = ", ".join(
        f"load_x(at_x + {k}u * params.x_strides_{(rank - 1) // 4}[{(rank - 1) % 4}])" for k in range(count)
    )
    statements = f"{index_code(rank, ['x'], f'(g * {count}u)')}\n  store{count}_y(g, {loads});"
    sources = [Source("x", unit.view(x))]
    return group_map(target, f"{name}_rows_r{rank}_{unit.bits}", unit.view(y), sources, statements, values)


def fill(target: Target, name: str, y: Operand, pattern: bytes) -> Dispatch:
    """Every 16 bytes of y := `pattern`, a whole number of elements."""
    words = [int.from_bytes(pattern[k : k + 4], "little") for k in range(0, 16, 4)]
    unit = Unit.widest(y.type.dtype)
    return move(target, name, unit, y, {}, "return params.pattern;", {"pattern": words})

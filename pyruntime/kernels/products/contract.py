"""Sums of products over any strided views: the kernel for contractions that are no plain matrix product.

y[o] = sum over s of the product of x_i[o · outer_i + s · inner_i]. Every invocation makes its results alone; sums are
blocked by 64, 64-bit integers are exact modulo 2^64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pyruntime.ir import DType
from pyruntime.kernels.ir.dispatch import Dispatch, Operand
from pyruntime.kernels.ir.indexing import MAX_RANK, collapse, index_code, index_values
from pyruntime.kernels.map import Source, gather_map
from pyruntime.target import Target

__all__ = ["Factor", "contract"]


@dataclass(frozen=True, slots=True)
class Factor:
    """A tensor of the product: its strides in elements along the output's dimensions and along the summed ones."""

    operand: Operand
    outer: tuple[int, ...]
    inner: tuple[int, ...]


def contract(
    target: Target, name: str, y: Operand, factors: Sequence[Factor], outer: Sequence[int], inner: Sequence[int]
) -> Dispatch:
    """y[o] = sum over s in `inner` of the product of all factors; y has the dimensions `outer`.

    Raises:
        ValueError: more than MAX_RANK dimensions are left on either side after merging.
    """
    names = [f"x{i}" for i in range(len(factors))]
    out_dims, out_views = collapse(outer, *(f.outer for f in factors))
    sum_dims, sum_views = collapse(inner, *(f.inner for f in factors))
    if max(len(out_dims), len(sum_dims)) > MAX_RANK:
        raise ValueError(f"a contraction has at most {MAX_RANK} dimensions on either side")
    steps = [f"k{i}" for i in range(len(factors))]
    count = math.prod(inner)
    values = {
        "count": count,
        **index_values(out_dims, {n: (0, v) for n, v in zip(names, out_views, strict=True)}),
        **index_values(sum_dims, {n: (0, v) for n, v in zip(steps, sum_views, strict=True)}, "inner"),
    }
    element = _element(y.type.dtype, [f.operand.type.dtype for f in factors], len(out_dims), len(sum_dims))
    sources = [Source(n, f.operand) for n, f in zip(names, factors, strict=True)]
    full = f"{name}_r{len(out_dims)}{len(sum_dims)}"
    return gather_map(target, full, y, sources, element, values, flops=2 * y.type.size * count)


def _element(y: DType, types: Sequence[DType], out_rank: int, sum_rank: int) -> str:
    """WGSL that sums the products for output element `i`."""
    names = [f"x{i}" for i in range(len(types))]
    steps = [f"k{i}" for i in range(len(types))]
    scalar = y.compute
    wide = y.is_wide

    def load(n: str, s: str, dtype: DType) -> str:
        value = f"load_{n}(at_{n} + at_{s})"
        return value if dtype.compute == scalar else f"{scalar}({value})"

    loads = [load(n, s, d) for n, s, d in zip(names, steps, types, strict=True)]
    term = loads[0]
    for other in loads[1:]:
        term = f"i64_mul({term}, {other})" if wide else f"{term} * {other}"
    index = index_code(sum_rank, steps, "k", "inner").replace("\n  ", "\n      ")
    return f"""{index_code(out_rank, names)}
  var total = {scalar}();
  var k = 0u;
  while (k < params.count) {{
    var part = {scalar}();
    for (var n = 0u; n < 64u; n++) {{
      if (k >= params.count) {{ break; }}
      {{
      {index}
      part = {f"i64_add(part, {term})" if wide else f"part + {term}"};
      }}
      k += 1u;
    }}
    total = {"i64_add(total, part)" if wide else "total + part"};
  }}
  return total;"""

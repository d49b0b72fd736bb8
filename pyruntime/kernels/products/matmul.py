"""Matrix products on the GPU: the dispatches of each of the kernels that `kernels.products.candidates` chooses from."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Any

from pyruntime.ir import DType, multiple, upper
from pyruntime.kernels.ir.dispatch import Dispatch, Operand, Target, scratch
from pyruntime.kernels.ir.epilogue import Epilogue, attach
from pyruntime.kernels.ir.fallback import fallback_flag
from pyruntime.kernels.ir.launch import launch
from pyruntime.kernels.products.candidates import PRODUCTS, TILES, ProductProblem, Way, skinny_split
from pyruntime.kernels.products.contract import Factor, contract
from pyruntime.kernels.products.description import Product, product_of
from pyruntime.kernels.products.packed_weights import Packed
from pyruntime.kernels.products.tiling import SMALL, TILE_K, Tiling
from pyruntime.kernels.selection.lanes import shuffled

__all__ = [
    "Extras",
    "Product",
    "Tiling",
    "batch_params",
    "matmul",
    "packed_product",
    "product_of",
    "row_product",
    "select",
    "sum_splits",
]


@dataclass(frozen=True, slots=True)
class Extras:
    """What the tiled kernel reads besides a and b.

    Attributes:
        a_zero, b_zero: zero points subtracted from a and b, with stride 0 (one for all) or 1 (one a row of a, a column
            of b).
        bias: one element a row of y, counted over all batches, again and again.
        packed: what b is, where its weights are packed.
    """

    a_zero: tuple[Operand, int] | None = None
    b_zero: tuple[Operand, int] | None = None
    bias: Operand | None = None
    packed: Packed | None = None

    @property
    def operands(self) -> dict[str, Operand]:
        """The tensors by their names in the shader."""
        found = {"a_zero": self.a_zero and self.a_zero[0], "b_zero": self.b_zero and self.b_zero[0], "bias": self.bias}
        made = {name: operand for name, operand in found.items() if operand is not None}
        return {**made, **(self.packed.operands if self.packed is not None else {})}

    @property
    def params(self) -> dict[str, int]:
        """Values of the Params fields that belong to them."""
        return {
            "a_zero_stride": self.a_zero[1] if self.a_zero is not None else 0,
            "b_zero_stride": self.b_zero[1] if self.b_zero is not None else 0,
            "channels": self.bias.type.size if self.bias is not None else 1,
            **(self.packed.fields if self.packed is not None else {}),
        }


NO_EXTRAS = Extras()

MAX_BATCH_RANK = 4
"""Batch dimensions, after merging, that the kernels can step through."""


def select(product: Product, target: Target) -> Tiling:
    """The cheapest tiled configuration for a product on a device."""
    tiling = TILES.choose(ProductProblem.of(product, target), target).way.tiling
    assert tiling is not None
    return tiling


def matmul(
    target: Target,
    y: Operand,
    a: Operand,
    b: Operand,
    product: Product,
    epilogue: Epilogue | None = None,
    tiling: Tiling | None = None,
    extras: Extras = NO_EXTRAS,
) -> tuple[Dispatch, ...]:
    """y = a @ b, then `epilogue`.

    Args:
        y: [batches, m, n]; floats are summed in float32, integers modulo 2^32 (of 64 bits: 2^64).
        tiling: the tiled configuration to use instead of the best.
        extras: what is read besides; with them the product is tiled.
    """
    if len(product.batch) > MAX_BATCH_RANK:
        raise ValueError(f"matmul steps through at most {MAX_BATCH_RANK} batch dimensions, got {len(product.batch)}")
    if not y.type.size:
        return ()
    if y.type.dtype.is_wide:
        return (_wide(target, y, a, b, product),)
    if tiling is None and extras.operands:
        tiling = select(product, target)
    way = (
        Way("tiled", tiling) if tiling is not None else PRODUCTS.choose(ProductProblem.of(product, target), target).way
    )
    made: tuple[Dispatch, ...]
    if way.tiling is not None:
        made = _tiled(target, y, a, b, product, way.tiling, extras)
    elif way.kernel == "few_columns":
        made = (_skinny(target, y, b, a, _swapped(product), swapped=True),)
    elif way.kernel == "skinny":
        made = (_skinny(target, y, a, b, product),)
    else:
        made = (_direct(target, y, a, b, product, way.rows),)
    return (*made[:-1], attach(made[-1], epilogue)) if epilogue is not None else made


def row_product(
    target: Target, y: Operand, a: Operand, b: Operand, product: Product, bias: Operand | None, tiling: Tiling
) -> Dispatch:
    """y = a @ b + bias, one element a row (counted over all batches, again and again), by tiles without splits."""
    (made,) = _tiled(target, y, a, b, product, tiling, Extras(bias=bias))
    return made


def packed_product(target: Target, y: Operand, a: Operand, b: Packed, product: Product) -> tuple[Dispatch, ...]:
    """y = a @ b by tiles, b unpacked on its way into workgroup memory."""
    tiling = select(product, target)
    return _tiled(target, y, a, b.operand, product, tiling, Extras(packed=b))


def _wide(target: Target, y: Operand, a: Operand, b: Operand, p: Product) -> Dispatch:
    """64-bit integers: every result on its own."""
    a_row, a_step = (1, p.m) if p.trans_a else (p.k, 1)
    b_col, b_step = (p.k, 1) if p.trans_b else (1, p.n)
    left = Factor(a, (*p.a_strides, a_row, 0), (a_step,))
    right = Factor(b, (*p.b_strides, 0, b_col), (b_step,))
    return contract(target, "matmul_64", y, (left, right), (*p.batch, p.m, p.n), (p.k,))


def _swapped(p: Product) -> Product:
    """The product of a matrix and a vector, read as vector and matrix: y^T = b^T a^T."""
    return Product(1, p.m, p.k, p.batch, p.b_strides, p.a_strides, not p.trans_b, not p.trans_a)


def batch_params(product: Product) -> dict[str, list[int]]:
    """The Params fields that step through batches: dimensions and strides, right-aligned in four."""
    pad = MAX_BATCH_RANK - len(product.batch)
    return {
        "batch": [1] * pad + list(product.batch),
        "a_strides": [0] * pad + list(product.a_strides),
        "b_strides": [0] * pad + list(product.b_strides),
    }


def _vectors(product: Product) -> tuple[bool, bool, bool]:
    """Whether rows of a, b and y are whole vec4s."""
    rows_a = product.m if product.trans_a else product.k
    rows_b = product.k if product.trans_b else product.n
    return multiple(rows_a, 4), multiple(rows_b, 4), multiple(product.n, 4)


def _skinny(target: Target, y: Operand, a: Operand, b: Operand, p: Product, swapped: bool = False) -> Dispatch:
    """`shaders/products/matmul_skinny.wgsl`: 256 invocations, as few shares of k as still fill a workgroup."""
    _, vec_b, vec_y = _vectors(p)
    # A vector is contiguous whichever way it is said to be stored.
    row, step = (1, p.m) if p.trans_a and p.m > 1 else (p.k, 1)
    cols, shares = skinny_split(upper(p.k), p.trans_b)
    defines = {
        "M": p.m,
        "COLS": cols,
        "SHARES": shares,
        "TRANS_B": p.trans_b,
        "VEC_A": p.trans_b and step == 1 and multiple(p.k, 4),
        "VEC_B": vec_b,
        "VEC_Y": vec_y and not p.trans_b,
        "SWAPPED": swapped,
        **shuffled(target, shares, 1 if p.trans_b else cols),
    }
    blocks = -(-p.n // (cols if p.trans_b else 4 * cols))
    groups = blocks * p.batches
    values = {"n": p.n, "k": p.k, "a_row": row, "a_step": step, "blocks": blocks, "groups": groups, **batch_params(p)}
    made = launch("matmul_skinny", {"a": a, "b": b, "y": y}, target.fold(groups), defines, values, p.flops)
    return made.called(_name("matmul_skinny", p))


def _direct(target: Target, y: Operand, a: Operand, b: Operand, p: Product, high: int) -> Dispatch:
    """`shaders/products/matmul_direct.wgsl`, `high` rows an invocation."""
    row, step = (1, p.m) if p.trans_a and p.m > 1 else (p.k, 1)
    columns = -(-p.n // 4)
    eight = high == 8
    rows = -(-p.m // high)
    jobs = columns * rows * p.batches
    whole = multiple(p.n, 4)
    flags = {"TRANS_B": p.trans_b, "VEC_B": not p.trans_b and whole, "VEC_Y": whole, "EIGHT": eight}
    values: dict[str, Any] = {
        "n": p.n,
        "k": p.k,
        "m": p.m,
        "columns": columns,
        "rows": rows,
        "a_row": row,
        "a_step": step,
    }
    values |= {"jobs": jobs, **batch_params(p)}
    made = launch("matmul_direct", {"a": a, "b": b, "y": y}, target.grid(jobs), flags, values, p.flops)
    return made.called(_name(f"matmul_direct_{'eight' if eight else 'four'}", p))


def _name(kernel: str, p: Product, tiling: Tiling | None = None) -> str:
    """What profiles show: configuration and storage order, 'matmul_s4_nt'."""
    order = f"{'t' if p.trans_a else 'n'}{'t' if p.trans_b else 'n'}"
    if tiling is None:
        return f"{kernel}_{order}"
    return f"{kernel}_{tiling.kernel}_{order}"


def _tiled(
    target: Target, y: Operand, a: Operand, b: Operand, p: Product, tiling: Tiling, extras: Extras
) -> tuple[Dispatch, ...]:
    """`shaders/products/matmul_tiled.wgsl`, and the sum of its splits."""
    split, packed, more = tiling.splits > 1, extras.packed, extras.operands
    sums = {"f32": DType.FLOAT, "i32": DType.INT32, "u32": DType.UINT32}[y.type.dtype.compute]
    target_y = scratch(sums, tiling.splits, p.batches, p.m, p.n) if split else y
    read = {"a": a, "b": b, **more}
    # Rows of a transposed matrix are read by fours.
    fallback = fallback_flag(target, p.flops, FALLBACK_ROWS=4 if p.trans_a else 1)
    defines = {
        **_defines(target, p, tiling, more.keys()),
        **({"QUANTIZED": True, **packed.defines} if packed is not None else fallback),
    }
    groups = tiling.groups(p)
    values = {
        "m": p.m,
        "n": p.n,
        "k": p.k,
        "steps": tiling.steps(p.k),
        "m_tiles": -(-p.m // tiling.high),
        "n_tiles": -(-p.n // tiling.wide),
        "batches": p.batches,
        "groups": groups,
        **batch_params(p),
        **extras.params,
    }
    product = launch("matmul_tiled", {**read, "y": target_y}, target.fold(groups), defines, values, p.flops)
    product = product.called(_name(packed.name if packed is not None else "matmul", p, tiling))
    return (product, sum_splits(target, y, target_y, p, tiling.splits)) if split else (product,)


def _defines(target: Target, p: Product, tiling: Tiling, more: Set[str]) -> dict[str, object]:
    """What of `shaders/products/matmul_tiled.wgsl` is there; `more`: names of tensors besides a, b and y."""
    vec_a, vec_b, vec_y = _vectors(p)
    return {
        "TILE_M": tiling.high,
        "TILE_N": tiling.wide,
        "ROWS": tiling.rows,
        "QUADS": tiling.quads,
        "SLICES": tiling.slices,
        "TRANS_A": p.trans_a,
        "TRANS_B": p.trans_b,
        "VEC_A": vec_a,
        "VEC_B": vec_b,
        "VEC_Y": vec_y,
        "GUARD_K": not multiple(p.k, TILE_K * tiling.slices * tiling.splits),
        "SPLIT": tiling.splits > 1,
        "SLICED": tiling.slices > 1 and tiling.tile == SMALL.tile,
        "STAGED": tiling.slices > 1 and tiling.tile != SMALL.tile,
        "K_MAJOR": p.trans_a or tiling.tile != SMALL.tile,
        "UNROLL": not target.is_software,
        "ROLLED": target.node.long_epilogue and tiling.splits == 1,
        "ZERO_A": "a_zero" in more,
        "ZERO_B": "b_zero" in more,
        "BIAS": "bias" in more,
    }


def sum_splits(target: Target, y: Operand, parts: Operand, p: Product, splits: int) -> Dispatch:
    """`shaders/products/matmul_sum_splits.wgsl`."""
    vector = multiple(p.n, 4)
    size = p.batches * p.m * p.n
    grid, values = target.grid(-(-size // 4) if vector else size), {"size": size, "n": p.n, "splits": splits}
    return launch("matmul_sum_splits", {"parts": parts, "y": y}, grid, {"VEC_Y": vector}, values)

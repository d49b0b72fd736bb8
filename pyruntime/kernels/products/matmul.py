"""Matrix products on the GPU: the dispatches of each of the kernels that `kernels.products.candidates` chooses from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from pyruntime.ir import DType, multiple, upper
from pyruntime.kernels.ir.dispatch import Dispatch, Operand, scratch
from pyruntime.kernels.ir.epilogue import Epilogue, attach
from pyruntime.kernels.ir.fallback import fallback_flag
from pyruntime.kernels.ir.launch import launch
from pyruntime.kernels.ir.node import facts_of
from pyruntime.kernels.products.candidates import PRODUCTS, TILES, ProductProblem, Way, skinny_split
from pyruntime.kernels.products.contract import Factor, contract
from pyruntime.kernels.products.description import Product, product_of
from pyruntime.kernels.products.packed_weights import Packed
from pyruntime.kernels.products.tiling import SMALL, AnyTiling, Tiling
from pyruntime.kernels.selection.lanes import shuffled
from pyruntime.target import Target

__all__ = ["Matmul", "Product", "Tiling", "batch_params", "matmul", "product_of", "select", "sum_splits"]


Zero: TypeAlias = tuple[Operand, int]
"""Zero points, and their stride: 0 (one for all) or 1 (one a row of a, a column of b)."""


@dataclass(frozen=True, slots=True)
class Matmul:
    """y = (a - a_zero) @ (b - b_zero) + bias, then `epilogue`: what a kernel is made for.

    Attributes:
        product: sizes, batches, storage orders.
        y: [batches, m, n]; floats are summed in float32, integers modulo 2^32 (of 64 bits: 2^64).
        bias: one element a row of y, counted over all batches, again and again.
        packed: what b is, where its weights are packed.
        tiling: the tiled configuration to use instead of the best.
        is_swapped: y is that of a matrix and a vector, computed as the one of the vector and the matrix.
    """

    product: Product
    y: Operand
    a: Operand
    b: Operand
    epilogue: Epilogue | None = None
    a_zero: Zero | None = None
    b_zero: Zero | None = None
    bias: Operand | None = None
    packed: Packed | None = None
    tiling: AnyTiling | None = None
    is_swapped: bool = False

    @property
    def tensors(self) -> dict[str, Operand | None]:
        """The tensors by their names in the shaders."""
        zeros = {n: z and z[0] for n, z in (("a_zero", self.a_zero), ("b_zero", self.b_zero))}
        packed = self.packed.operands if self.packed is not None else {}
        return {"a": self.a, "b": self.b, **zeros, "bias": self.bias, **packed, "y": self.y}

    @property
    def must_tile(self) -> bool:
        """True where only tiles have what it takes."""
        return any(x is not None for x in (self.a_zero, self.b_zero, self.bias, self.packed))

    @property
    def is_half(self) -> bool:
        """True where both operands are float16 as they are."""
        plain = self.a_zero is None and self.b_zero is None and self.packed is None
        return plain and self.a.type.dtype is self.b.type.dtype is DType.FLOAT16

    @property
    def steps_a(self) -> tuple[int, int]:
        """Strides of a along m and k, in elements; a vector is contiguous even if a is transposed."""
        p = self.product
        return (1, p.m) if p.trans_a and p.m > 1 else (p.k, 1)

    @property
    def vectors(self) -> dict[str, bool]:
        """Which operands have rows of a multiple of four elements, and so load as vec4."""
        p = self.product
        rows = {"VEC_A": p.m if p.trans_a else p.k, "VEC_B": p.k if p.trans_b else p.n, "VEC_Y": p.n}
        return {name: multiple(size, 4) for name, size in rows.items()}

    @property
    def serial_rows(self) -> int:
        """Rows that an invocation of `_serial` makes; 0 where it is not for the operands."""
        p = self.product
        plain = all(o.type.dtype is DType.FLOAT for o in (self.a, self.b, self.y))
        if not plain or not all(isinstance(size, int) for size in (p.m, p.n, p.k)):
            return 0
        if self.is_along_k:
            return min(p.m, 2) if self.steps_a[1] == 1 else 0
        return min(p.m, 4) if p.m != 3 else 2

    @property
    def is_along_k(self) -> bool:
        """Whether columns of b lie in memory one after the other."""
        return self.product.trans_b or self.product.n == 1

    def swapped(self) -> Matmul:
        """The product of a matrix and a vector, read as vector and matrix: y^T = b^T a^T."""
        p = self.product
        turned = Product(1, p.m, p.k, p.batch, p.b_strides, p.a_strides, not p.trans_b, not p.trans_a)
        return replace(self, product=turned, a=self.b, b=self.a, is_swapped=True)

    def lower(self, target: Target) -> tuple[Dispatch, ...]:
        """Return the dispatches of the product."""
        if len(self.product.batch) > MAX_BATCH_RANK:
            raise ValueError(
                f"matmul steps through at most {MAX_BATCH_RANK} batch dimensions, got {len(self.product.batch)}"
            )
        if not self.y.type.size:
            return ()
        if self.y.type.dtype.is_wide:
            return (_wide(target, self),)
        if target.is_serial and not self.must_tile and self.serial_rows:
            whole = _serial(target, self, self.serial_rows)
            return (attach(whole, self.epilogue) if self.epilogue is not None else whole,)
        half = self.is_half and target.has_f16
        tiling = self.tiling or (select(self.product, target, half) if self.must_tile else None)
        problem = ProductProblem.of(self.product, target, half)
        way = Way("tiled", tiling) if tiling else PRODUCTS.choose(problem, target).way
        made: tuple[Dispatch, ...]
        if way.tiling is not None:
            made = _tiled(target, self, way.tiling)
        elif way.kernel == "few_columns":
            made = (_skinny(target, self.swapped()),)
        elif way.kernel == "skinny":
            made = (_skinny(target, self),)
        else:
            made = (_direct(target, self, way.rows),)
        return (*made[:-1], attach(made[-1], self.epilogue)) if self.epilogue is not None else made

    def launch(
        self,
        shader: str,
        name: str,
        grid: tuple[int, int, int],
        defines: Mapping[str, object],
        values: Mapping[str, object],
    ) -> Dispatch:
        """The dispatch of a template, which profiles call by its storage orders, too: 'matmul_s4_nt'."""
        p = self.product
        made = launch(shader, self.tensors, grid, defines, {**values, **batch_params(p)}, p.flops)
        return made.called(f"{name}_{'t' if p.trans_a else 'n'}{'t' if p.trans_b else 'n'}")


MAX_BATCH_RANK = 4
"""Batch dimensions, after merging, that the kernels can step through."""


def select(product: Product, target: Target, half: bool = False) -> AnyTiling:
    """The cheapest tiled configuration for a product on a device; `half`: of float16."""
    tiling = TILES.choose(ProductProblem.of(product, target, half), target).way.tiling
    assert tiling is not None
    return tiling


def matmul(
    target: Target, y: Operand, a: Operand, b: Operand, product: Product, epilogue: Epilogue | None = None
) -> tuple[Dispatch, ...]:
    """y = a @ b, then `epilogue`; y: [batches, m, n]."""
    return Matmul(product, y, a, b, epilogue).lower(target)


def _wide(target: Target, m: Matmul) -> Dispatch:
    """Return the dispatch for 64-bit integers: an invocation computes one result."""
    p = m.product
    a_row, a_step = (1, p.m) if p.trans_a else (p.k, 1)
    b_col, b_step = (p.k, 1) if p.trans_b else (1, p.n)
    left = Factor(m.a, (*p.a_strides, a_row, 0), (a_step,))
    right = Factor(m.b, (*p.b_strides, 0, b_col), (b_step,))
    return contract(target, "matmul_64", m.y, (left, right), (*p.batch, p.m, p.n), (p.k,))


def batch_params(product: Product) -> dict[str, list[int]]:
    """The Params fields that step through batches: dimensions and strides, right-aligned in four."""
    pad = MAX_BATCH_RANK - len(product.batch)
    return {
        "batch": [1] * pad + list(product.batch),
        "a_strides": [0] * pad + list(product.a_strides),
        "b_strides": [0] * pad + list(product.b_strides),
    }


def _skinny(target: Target, m: Matmul) -> Dispatch:
    """`shaders/products/matmul_skinny.wgsl`: as few shares of k as still fill a workgroup."""
    p, vectors = m.product, m.vectors
    row, step = m.steps_a
    cols, shares = skinny_split(target, upper(p.k), p.trans_b)
    defines = {
        "M": p.m,
        "COLS": cols,
        "SHARES": shares,
        "TRANS_B": p.trans_b,
        "VEC_A": p.trans_b and step == 1 and multiple(p.k, 4),
        "VEC_B": vectors["VEC_B"],
        "VEC_Y": vectors["VEC_Y"] and not p.trans_b,
        "SWAPPED": m.is_swapped,
        **shuffled(target, shares, 1 if p.trans_b else cols),
    }
    blocks = -(-p.n // (cols if p.trans_b else 4 * cols))
    groups = blocks * p.batches
    values = {"n": p.n, "k": p.k, "a_row": row, "a_step": step, "blocks": blocks, "groups": groups}
    return m.launch("matmul_skinny", "matmul_skinny", target.fold(groups), defines, values)


def _direct(target: Target, m: Matmul, high: int) -> Dispatch:
    """`shaders/products/matmul_direct.wgsl`, `high` rows an invocation."""
    p, whole = m.product, m.vectors["VEC_Y"]
    row, step = m.steps_a
    columns, rows = -(-p.n // 4), -(-p.m // high)
    jobs = columns * rows * p.batches
    flags = {"TRANS_B": p.trans_b, "VEC_B": not p.trans_b and whole, "VEC_Y": whole, "EIGHT": high == 8}
    values = {
        "n": p.n,
        "k": p.k,
        "m": p.m,
        "columns": columns,
        "rows": rows,
        "a_row": row,
        "a_step": step,
        "jobs": jobs,
    }
    name = f"matmul_direct_{'eight' if high == 8 else 'four'}"
    return m.launch("matmul_direct", name, target.grid(jobs), flags, values)


def _serial(target: Target, m: Matmul, high: int) -> Dispatch:
    """`shaders/products/matmul_serial.wgsl`, `high` rows an invocation."""
    p = m.product
    row, step = m.steps_a
    columns, rows = -(-p.n // (4 if m.is_along_k else 8)), -(-p.m // high)
    jobs = columns * rows * p.batches
    flags = {"TRANS_B": m.is_along_k, "VEC_Y": m.vectors["VEC_Y"], "ROWS": high}
    sizes = {"n": p.n, "k": p.k, "m": p.m, "columns": columns, "rows": rows}
    values = {**sizes, "a_row": row, "a_step": step, "jobs": jobs}
    return m.launch("matmul_serial", "matmul_serial", target.grid(jobs), flags, values)


def _tiled(target: Target, m: Matmul, tiling: AnyTiling) -> tuple[Dispatch, ...]:
    """The product in tiles, and the sum of its splits."""
    tiling = tiling.on(target)
    p, packed, splits = m.product, m.packed, tiling.splits
    sums = {"f32": DType.FLOAT, "i32": DType.INT32, "u32": DType.UINT32}[m.y.type.dtype.compute]
    part = m if splits == 1 else replace(m, y=scratch(sums, splits, p.batches, p.m, p.n))
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
    }
    vectors = m.vectors
    defines: dict[str, object] = {
        "TILE_M": tiling.high,
        "TILE_N": tiling.wide,
        "TRANS_A": p.trans_a,
        "TRANS_B": p.trans_b,
        "VEC_A": vectors["VEC_A"],
        "VEC_Y": vectors["VEC_Y"],
        "GUARD_K": not multiple(p.k, tiling.depth * tiling.slices * splits),
        "SPLIT": splits > 1,
    }
    if packed is None:
        # Rows of a transposed matrix are read by fours.
        defines |= fallback_flag(target, p.flops, FALLBACK_ROWS=4 if p.trans_a else 1)
        defines |= {"VEC_B": vectors["VEC_B"], "BIAS": m.bias}
        values |= {"channels": m.bias.type.size if m.bias else 1}
    else:
        defines |= packed.defines
        values |= packed.fields
    if isinstance(tiling, Tiling):
        shader, more = _of_registers(target, m, tiling)
    else:
        shader, more = "matmul_matrix_tiled", {"TILE_K": tiling.depth, **tiling.constants}
    if shader == "matmul_tiled":
        values |= {f"{side}_zero_stride": zero[1] if zero else 0 for side, zero in (("a", m.a_zero), ("b", m.b_zero))}
    name = packed.name if packed is not None else "matmul"
    made = part.launch(shader, f"{name}_{tiling.kernel}", target.fold(groups), {**defines, **more}, values)
    return (made, sum_splits(target, m.y, part.y, p, splits)) if splits > 1 else (made,)


def _of_registers(target: Target, m: Matmul, tiling: Tiling) -> tuple[str, dict[str, object]]:
    """The template whose invocations sum in registers, and its defines beyond sizes."""
    small = tiling.tile == SMALL.tile
    defines: dict[str, object] = {
        "ROWS": tiling.rows,
        "QUADS": tiling.quads,
        "SLICES": tiling.slices,
        "SLICED": tiling.slices > 1 and small,
        "STAGED": tiling.slices > 1 and not small,
        "UNROLL": not target.is_software,
        "ROLLED": facts_of(target).long_epilogue and tiling.splits == 1,
    }
    if m.packed is None and tiling.half:
        return "matmul_half_tiled", defines | {"SHARES": tiling.slices > 1, "TILE_K": tiling.depth}
    defines |= {"K_MAJOR": m.product.trans_a or not small}
    if m.packed is not None:
        return "matmul_packed_tiled", defines
    return "matmul_tiled", defines | {"ZERO_A": m.a_zero, "ZERO_B": m.b_zero}


def sum_splits(target: Target, y: Operand, parts: Operand, p: Product, splits: int) -> Dispatch:
    """Return the dispatch of `shaders/products/matmul_sum_splits.wgsl`, which sums the partial results of split-K."""
    vector = multiple(p.n, 4)
    size = p.batches * p.m * p.n
    grid, values = target.grid(-(-size // 4) if vector else size), {"size": size, "n": p.n, "splits": splits}
    return launch("matmul_sum_splits", {"parts": parts, "y": y}, grid, {"VEC_Y": vector}, values)

"""Matrix products on the GPU: which kernel, which configuration, and its dispatches.

    direct     no workgroup memory: for adapters that run on a processor
    few rows   m <= 8 (or n = 1): every element of b is read once, k is split within a workgroup
    tiled S    32 x 32, 4 x 4 an invocation, k split over up to 4 slices of a workgroup: small and narrow products
    tiled M    64 x 64, 8 x 4 an invocation; where its tiles fit the GPU, k is split over slices of a workgroup
    tiled L    128 x 128, 8 x 8 an invocation: where 200 tiles or more keep the GPU busy

Where tiles are few, M and S also deal k out over workgroups; a second dispatch adds the partial sums. The rule was
fitted to measurements of 17 configurations on many shapes; it is within 3% of the best of them on average. The slices
of M came later: as fast by estimate, a dispatch less.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace

from pyruntime.ir import DType, multiple, upper
from pyruntime.kernels.contract import Factor, contract
from pyruntime.kernels.dispatch import Dispatch, Limits, Operand, Target, scratch
from pyruntime.kernels.epilogue import Epilogue, attach
from pyruntime.kernels.packed import Packed
from pyruntime.kernels.product import Product, product_of
from pyruntime.kernels.template import params_of, template

__all__ = ["Product", "Tiling", "matmul", "packed_product", "product_of", "row_product", "select"]

TILE_K = 16
FEW_ROWS = 8
"""Products of at most this many rows read b once instead of tiling it."""

EIGHT_JOBS = 128
"""Invocations of a direct kernel from which on each makes eight rows, or channels: two workgroups, one a core."""

MAX_BATCH_RANK = 4
"""Batch dimensions, after merging, that the kernels can step through."""


@dataclass(frozen=True, slots=True)
class Tiling:
    """A configuration of `shaders/matmul_tiled.wgsl`.

    Attributes:
        tile: results of a workgroup in each direction.
        rows, quads: results of an invocation: `rows` rows of `quads` vec4s.
        slices: shares of k within a workgroup. splits: shares of k over workgroups.
    """

    tile: int
    rows: int
    quads: int
    slices: int = 1
    splits: int = 1

    @property
    def threads(self) -> int:
        """Invocations of a workgroup."""
        return self.tile // self.rows * self.tile // (4 * self.quads) * self.slices

    def steps(self, k: int) -> int:
        """Steps of TILE_K every slice of every split takes."""
        return -(-k // (TILE_K * self.slices * self.splits))

    def groups(self, product: Product) -> int:
        """Workgroups."""
        return self.tiles(product) * self.splits

    def tiles(self, product: Product) -> int:
        """Tiles over all batches."""
        return -(-product.m // self.tile) * -(-product.n // self.tile) * product.batches


SMALL = Tiling(32, 4, 1)
MEDIUM = Tiling(64, 8, 1)
LARGE = Tiling(128, 8, 2)

MANY = 200
"""Tiles of L that keep a GPU busy."""

UNITS = 132
"""Workgroups of M with four slices that run at once on the GPU the rule was fitted to."""


def select(product: Product, limits: Limits, disabled: Set[str] = frozenset()) -> Tiling:
    """The configuration for a product on a device, without the variants switched off."""
    tiling = _best(product.most(), limits, disabled)
    return replace(tiling, splits=1) if "matmul_split" in disabled else tiling


def _best(product: Product, limits: Limits, disabled: Set[str]) -> Tiling:
    m, n, k = product.m, product.n, product.k
    narrow = min(m, n) <= 32
    filled = m * n * product.batches / max(1, LARGE.tiles(product) * LARGE.tile**2)
    if LARGE.tiles(product) >= MANY and filled >= 0.6 and not narrow and "matmul_large" not in disabled:
        return LARGE
    if narrow or product.flops < 110e6:
        tiles = SMALL.tiles(product)
        shares = 4 if k >= 256 else 2 if k >= 128 else 1
        while shares > 1 and (_workgroup_bytes(shares) > limits.workgroup_bytes or tiles * shares > 2048):
            shares //= 2
        # Narrow products are split sooner, the others where a slice would take 16 steps or more.
        room, least = (256, 8) if narrow else (128, 16)
        splits = 1
        while splits < 8 and tiles * splits * 2 <= room and k // (TILE_K * shares * splits) >= least:
            splits *= 2
        return replace(SMALL, slices=shares, splits=splits)
    sliced = _sliced(product, limits) if "matmul_slices" not in disabled else None
    if sliced is not None:
        return sliced
    splits = 8
    while splits > 1 and (MEDIUM.tiles(product) * splits > 600 or k // splits < 96):
        splits //= 2
    return replace(MEDIUM, splits=splits)


def _sliced(product: Product, limits: Limits) -> Tiling | None:
    """M with slices instead of splits, for small products whose tiles leave little of the GPU idle."""
    tiles = MEDIUM.tiles(product)
    busy = tiles / (UNITS * -(-tiles // UNITS))
    if busy < 0.72 or tiles > 2 * UNITS or product.k < 96 * 4 or product.flops > 1.5e9:
        return None
    for slices in (4, 2):
        made = replace(MEDIUM, slices=slices)
        staged = max(slices * TILE_K * 17, slices // 2 * 128 * 8) + slices * TILE_K * 16
        if 16 * staged <= limits.workgroup_bytes and made.threads <= min(limits.invocations, limits.workgroup_x):
            return made
    return None


def _workgroup_bytes(slices: int) -> int:
    """Workgroup memory of the small configuration."""
    staged_a = max(slices * SMALL.tile * (TILE_K // 4 + 1), (slices - 1) * 64 * SMALL.rows)
    return 16 * (staged_a + slices * TILE_K * SMALL.tile // 4)


def matmul(
    target: Target,
    y: Operand,
    a: Operand,
    b: Operand,
    product: Product,
    epilogue: Epilogue | None = None,
    a_zero: tuple[Operand, int] | None = None,
    b_zero: tuple[Operand, int] | None = None,
    first_scratch: int = 0,
    tiling: Tiling | None = None,
) -> tuple[Dispatch, ...]:
    """y = a @ b, then `epilogue`.

    Args:
        y: [batches, m, n]; floats are summed in float32, integers modulo 2^32 (of 64 bits: 2^64).
        a_zero, b_zero: zero points subtracted from a and b, with stride 0 (one for all) or 1 (one a row of a, a
            column of b).
        first_scratch: number of the first scratch tensor this may use (one).
        tiling: the tiled configuration to use instead of the best.
    """
    if len(product.batch) > MAX_BATCH_RANK:
        raise ValueError(f"matmul steps through at most {MAX_BATCH_RANK} batch dimensions, got {len(product.batch)}")
    if not y.type.size:
        return ()
    if y.type.dtype.is_wide:
        return (_wide(target, y, a, b, product),)
    chosen = tiling is not None or a_zero is not None or b_zero is not None
    few = target.allows("matmul_few_rows")
    made: tuple[Dispatch, ...]
    if not chosen and product.n == 1 and product.m > 1 and few:
        made = (_few_rows(target, y, b, a, _swapped(product), swapped=True),)
    elif not chosen and target.is_software and product.n > 1:
        made = (_direct(target, y, a, b, product),)
    elif not chosen and isinstance(product.m, int) and product.m <= FEW_ROWS and few:
        made = (_few_rows(target, y, a, b, product),)
    elif not chosen and not target.allows("matmul_tiled"):
        made = (_direct(target, y, a, b, product),)
    else:
        tiling = tiling or select(product, target.limits, target.disabled)
        made = _tiled(target, y, a, b, product, tiling, a_zero, b_zero, first_scratch)
    return (*made[:-1], attach(made[-1], epilogue)) if epilogue is not None else made


def row_product(
    target: Target, y: Operand, a: Operand, b: Operand, product: Product, bias: Operand | None
) -> Dispatch | None:
    """y = a @ b + bias, one element a row (counted over all batches, again and again), by tiles of 64 or 128.

    None where these are not the best configuration.
    """
    tiling = select(product, target.limits, target.disabled)
    if tiling.tile == SMALL.tile or tiling.splits > 1 or len(product.batch) > MAX_BATCH_RANK:
        return None
    (made,) = _tiled(target, y, a, b, product, tiling, None, None, 0, bias)
    return made


def packed_product(
    target: Target, y: Operand, a: Operand, b: Packed, product: Product, first_scratch: int = 0
) -> tuple[Dispatch, ...]:
    """y = a @ b by tiles, b unpacked on its way into workgroup memory.

    Args:
        first_scratch: number of the first scratch tensor this may use (one).
    """
    tiling = select(product, target.limits, target.disabled)
    return _tiled(target, y, a, b.operand, product, tiling, None, None, first_scratch, packed=b)


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


def _batch(product: Product) -> dict[str, list[int]]:
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


def _few_rows(target: Target, y: Operand, a: Operand, b: Operand, p: Product, swapped: bool = False) -> Dispatch:
    """`shaders/matmul_few_rows.wgsl`: 256 invocations, as few shares of k as still fill a workgroup."""
    _, vec_b, vec_y = _vectors(p)
    # A vector is contiguous whichever way it is said to be stored.
    row, step = (1, p.m) if p.trans_a and p.m > 1 else (p.k, 1)
    flags = {
        "TRANS_B": p.trans_b,
        "VEC_A": p.trans_b and step == 1 and multiple(p.k, 4),
        "VEC_B": vec_b,
        "VEC_Y": vec_y and not p.trans_b,
        "SWAPPED": swapped,
    }
    cols, shares = _shares(p)
    kernel = template(
        "matmul_few_rows",
        {"a": a.type.dtype, "b": b.type.dtype, "y": y.type.dtype},
        M=p.m,
        COLS=cols,
        SHARES=shares,
        **{k: 1 for k, v in flags.items() if v},
    )
    blocks = -(-p.n // (cols if p.trans_b else 4 * cols))
    groups = blocks * p.batches
    params = params_of(
        kernel, n=p.n, k=p.k, a_row=row, a_step=step, blocks=blocks, groups=groups, pad0=0, pad1=0, **_batch(p)
    )
    kernel = replace(kernel, name=_name("matmul_few_rows", p))
    return Dispatch(kernel, (a, b, y), target.fold(groups), params, flops=p.flops)


def _shares(p: Product) -> tuple[int, int]:
    """Columns, or quads of columns, of a workgroup of `few_rows`, and shares of k: more of them the longer k is."""
    long = upper(p.k) >= 2048
    if p.trans_b:
        return (4, 64) if long else (8, 32)
    return (2, 128) if long else (4, 64)


def _direct(target: Target, y: Operand, a: Operand, b: Operand, p: Product) -> Dispatch:
    """`shaders/matmul_direct.wgsl`, for software adapters."""
    row, step = (1, p.m) if p.trans_a and p.m > 1 else (p.k, 1)
    columns = -(-p.n // 4)
    eight = upper(p.m) > 4 and upper(columns * -(-p.m // 8) * p.batches) >= EIGHT_JOBS
    rows = -(-p.m // (8 if eight else 4))
    jobs = columns * rows * p.batches
    whole = multiple(p.n, 4)
    flags = {"TRANS_B": p.trans_b, "VEC_B": not p.trans_b and whole, "VEC_Y": whole, "EIGHT": eight}
    types = {"a": a.type.dtype, "b": b.type.dtype, "y": y.type.dtype}
    kernel = template("matmul_direct", types, **{k: 1 for k, v in flags.items() if v})
    params = params_of(
        kernel, n=p.n, k=p.k, m=p.m, columns=columns, rows=rows, a_row=row, a_step=step, jobs=jobs, **_batch(p)
    )
    kernel = replace(kernel, name=_name(f"matmul_direct_{'eight' if eight else 'four'}", p))
    return Dispatch(kernel, (a, b, y), target.grid(jobs), params, flops=p.flops)


def _name(kernel: str, p: Product, tiling: Tiling | None = None) -> str:
    """What profiles show: configuration and storage order, 'matmul_s4_nt'."""
    order = f"{'t' if p.trans_a else 'n'}{'t' if p.trans_b else 'n'}"
    if tiling is None:
        return f"{kernel}_{order}"
    size = {SMALL.tile: "s", MEDIUM.tile: "m"}.get(tiling.tile, "l")
    return f"{kernel}_{size}{tiling.slices}{f'_split{tiling.splits}' if tiling.splits > 1 else ''}_{order}"


def _tiled(
    target: Target,
    y: Operand,
    a: Operand,
    b: Operand,
    p: Product,
    tiling: Tiling,
    a_zero: tuple[Operand, int] | None,
    b_zero: tuple[Operand, int] | None,
    first_scratch: int,
    bias: Operand | None = None,
    packed: Packed | None = None,
) -> tuple[Dispatch, ...]:
    """`shaders/matmul_tiled.wgsl`, and the sum of its splits; `bias`: see `row_product`, `packed`: what b is."""
    split = tiling.splits > 1
    sums = {"f32": DType.FLOAT, "i32": DType.INT32, "u32": DType.UINT32}[y.type.dtype.compute]
    target_y = scratch(first_scratch, sums, tiling.splits, p.batches, p.m, p.n) if split else y
    zeros = {name: zero for name, zero in (("a_zero", a_zero), ("b_zero", b_zero)) if zero is not None}
    if bias is not None:
        zeros["bias"] = (bias, 1)
    if packed is not None:
        zeros |= {name: (operand, 1) for name, operand in packed.operands.items()}
    kernel = template(
        "matmul_tiled",
        {
            "a": a.type.dtype,
            "b": b.type.dtype,
            "y": target_y.type.dtype,
            **{name: zero[0].type.dtype for name, zero in zeros.items()},
        },
        TILE_M=tiling.tile,
        TILE_N=tiling.tile,
        ROWS=tiling.rows,
        QUADS=tiling.quads,
        SLICES=tiling.slices,
        PAD_A=_pad_a(tiling, target.limits),
        **_flags(target, p, tiling, zeros.keys()),
        **({"QUANTIZED": 1, **packed.defines} if packed is not None else {}),
    )
    groups = tiling.groups(p)
    params = params_of(
        kernel,
        m=p.m,
        n=p.n,
        k=p.k,
        steps=tiling.steps(p.k),
        m_tiles=-(-p.m // tiling.tile),
        n_tiles=-(-p.n // tiling.tile),
        batches=p.batches,
        groups=groups,
        a_zero_stride=a_zero[1] if a_zero else 0,
        b_zero_stride=b_zero[1] if b_zero else 0,
        channels=bias.type.size if bias is not None else 1,
        pad0=0,
        **_batch(p),
        **(packed.fields if packed is not None else {}),
    )
    operands = (a, b, *(zero[0] for zero in zeros.values()), target_y)
    product = Dispatch(
        replace(kernel, name=_name(packed.name if packed else "matmul", p, tiling)),
        operands,
        target.fold(groups),
        params,
        flops=p.flops,
    )
    return (product, _sum_splits(target, y, target_y, p, tiling.splits)) if split else (product,)


def _flags(target: Target, p: Product, tiling: Tiling, more: Set[str]) -> dict[str, int]:
    """What of `shaders/matmul_tiled.wgsl` is there; `more`: names of tensors besides a, b and y."""
    vec_a, vec_b, vec_y = _vectors(p)
    flags = {
        "TRANS_A": p.trans_a,
        "TRANS_B": p.trans_b,
        "VEC_A": vec_a,
        "VEC_B": vec_b,
        "VEC_Y": vec_y,
        "GUARD_K": not multiple(p.k, TILE_K * tiling.slices * tiling.splits),
        "SPLIT": tiling.splits > 1,
        "SLICED": tiling.slices > 1 and tiling.tile == SMALL.tile,
        "STAGED": tiling.slices > 1 and tiling.tile > SMALL.tile,
        "K_MAJOR": p.trans_a or tiling.tile > 32,
        "UNROLL": not target.is_software,
        "ZERO_A": "a_zero" in more,
        "ZERO_B": "b_zero" in more,
        "BIAS": "bias" in more,
    }
    return {name: 1 for name, on in flags.items() if on}


def _pad_a(tiling: Tiling, limits: Limits) -> int:
    """A vec4 between the rows of the staged tile of a spares bank conflicts where it fits."""
    staged = 16 * TILE_K * (tiling.tile // 4 + 1 + tiling.tile // 4)
    return 0 if tiling.tile > 64 and staged > limits.workgroup_bytes else 1


def _sum_splits(target: Target, y: Operand, parts: Operand, p: Product, splits: int) -> Dispatch:
    """`shaders/matmul_sum_splits.wgsl`."""
    vector = multiple(p.n, 4)
    kernel = template(
        "matmul_sum_splits", {"parts": parts.type.dtype, "y": y.type.dtype}, **({"VEC_Y": 1} if vector else {})
    )
    size = p.batches * p.m * p.n
    params = params_of(kernel, size=size, n=p.n, splits=splits, pad0=0)
    return Dispatch(kernel, (parts, y), target.grid(-(-size // 4) if vector else size), params)

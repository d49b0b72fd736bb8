"""Products with packed weights on the GPU: which kernel, which configuration, and its dispatches.

skinny     m <= 8: every weight is read once, k is split across lanes of a workgroup
direct     no workgroup memory: for adapters that run on a processor
dot        `kernels.products.packed_dot`: rows rounded to 8 bits, where the model permits it
tiled      `kernels.products.matmul`: weights are unpacked into the tiles
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pyruntime.ir import DType, upper
from pyruntime.kernels.ir.dispatch import Dispatch, Operand, Partials
from pyruntime.kernels.ir.epilogue import attach, linear
from pyruntime.kernels.ir.launch import launch
from pyruntime.kernels.ir.pairing import Pairing, attach_pairing
from pyruntime.kernels.products.candidates import SKINNY_ROWS
from pyruntime.kernels.products.description import Product
from pyruntime.kernels.products.matmul import Matmul
from pyruntime.kernels.products.packed_dot import dot_product, takes_dots
from pyruntime.kernels.products.packed_weights import Packed, in_words
from pyruntime.target import Target

__all__ = [
    "Experts",
    "Normed",
    "can_split",
    "expert_product",
    "merging_product",
    "normed_product",
    "paired_product",
    "product_with_packed",
]

CHUNK = 32
"""Most weights a lane takes at a time: 128 bits of 4-bit ones."""

THREADS = 256
"""Invocations of a workgroup: every device has as many."""

LONG = 192
"""Chunks of a column from which on more lanes share it, in workgroups of 512 invocations where a device has them."""

ROWS = 4
"""Most rows a workgroup of `skinny` makes: registers hold their sums."""

STAGED = 32768
"""Bytes of a that are staged at a time at most, where a device has them: more leaves a unit too few workgroups."""

UNDERWAY = 16
"""Most chunks of an invocation that are on their way at a time, in registers."""

MOST_SHARES = 5
"""Most partial results of an attention that a product reduces itself: each workgroup reads them all. A plan for a token
after up to 1,024 others has so many."""

NORMED = 32768
"""Most columns of a product that normalises its rows itself: each workgroup does it anew."""


@dataclass(frozen=True, slots=True)
class Normed:
    """Rows x · gain / sqrt(mean(x²) + epsilon), normalised by the product that reads them.

    Attributes:
        gain: [k].
    """

    x: Operand
    gain: Operand
    epsilon: float


def product_with_packed(
    target: Target,
    y: Operand,
    a: Operand,
    b: Packed,
    product: Product,
    bias: Operand | None = None,
    may_round: bool = False,
) -> tuple[Dispatch, ...]:
    """y = a @ b^T + bias, summed in float32.

    Args:
        y: [m, n]; a: [m, k], of float types.
        b: [n, k]; codes as the product's `trans_b` says.
        bias: [n].
        may_round: more rows than a decoder's few may be rounded to 8 bits.
    """
    if not y.type.size:
        return ()
    made: tuple[Dispatch, ...]
    if target.is_software and _is_split(b, product):
        made = (_direct(target, y, a, b, product),)
    elif _takes_skinny(target, b, product):
        made = (_skinny(target, y, _Rows.of(a), b, product),)
    elif may_round and takes_dots(target, b):
        made = dot_product(target, y, a, b, product)
    else:
        made = Matmul(product, y, a, b.operand, packed=b).lower(target)
    return _with_bias(made, bias, product)


def _with_bias(made: tuple[Dispatch, ...], bias: Operand | None, p: Product) -> tuple[Dispatch, ...]:
    epilogue = linear(bias, p.n, 1.0, 1.0, 0, 1) if bias is not None else None
    return (*made[:-1], attach(made[-1], epilogue)) if epilogue is not None else made


def paired_product(
    target: Target, y: Operand, a: Operand | Normed, b: Packed, product: Product, chain: Pairing
) -> tuple[Dispatch, ...] | None:
    """y[m, j] = chain(p[m, 2j], p[m, 2j + 1]) of p = a @ b^T as one kernel; None where the product's has no hook.

    Args:
        y: [m, n / 2].
    """
    if not y.type.size:
        return ()
    if not isinstance(a, Normed) and target.is_software and _is_split(b, product):
        return (attach_pairing(_direct(target, y, a, b, product, paired=True), chain),)
    fits = _can_normalize if isinstance(a, Normed) else _takes_skinny
    if target.is_software or not fits(target, b, product):
        return None
    return (attach_pairing(_skinny(target, y, _Rows.of(a), b, product, paired=True), chain),)


def normed_product(
    target: Target, y: Operand, a: Normed, b: Packed, product: Product, bias: Operand | None = None
) -> tuple[Dispatch, ...] | None:
    """`product_with_packed` of rows that are normalised on the way; None where the product's kernel cannot."""
    if not y.type.size:
        return ()
    if not _can_normalize(target, b, product):
        return None
    return _with_bias((_skinny(target, y, _Rows.of(a), b, product),), bias, product)


def merging_product(
    target: Target,
    y: Operand,
    a: Partials,
    dtype: DType,
    b: Packed,
    product: Product,
    bias: Operand | None = None,
) -> tuple[Dispatch, ...] | None:
    """`product_with_packed` of rows that are reduced from partial results on the way; None where that is not worth it.

    Args:
        dtype: of the rows.
    """
    if not y.type.size:
        return ()
    if target.is_software or not target.allows("merging_skinny") or a.splits > MOST_SHARES:
        return None
    if dtype not in (DType.FLOAT, DType.FLOAT16) or not _takes_skinny(target, b, product):
        return None
    rows = _Rows.of(a, half=dtype is DType.FLOAT16)
    return _with_bias((_skinny(target, y, rows, b, product),), bias, product)


def _can_normalize(target: Target, b: Packed, p: Product) -> bool:
    """Whether the skinny kernel is taken, and normalising in each workgroup is cheaper than a dispatch."""
    if target.is_software or not target.allows("normed_skinny") or p.n > NORMED:
        return False
    return _takes_skinny(target, b, p)


def _takes_skinny(target: Target, b: Packed, p: Product) -> bool:
    return _is_split(b, p) and p.m <= SKINNY_ROWS and target.allows("packed_skinny")


def _is_split(b: Packed, p: Product) -> bool:
    """Whether the kernels that take rows of weights as they are stored can have them."""
    return not b.is_grouped and p.trans_b and _fits_lanes(b, p)


@dataclass(frozen=True, slots=True)
class Experts:
    """Which matrix each row of a product has.

    Attributes:
        chosen: uint32 [m], numbers below `matrices`.
        share: rows in a row that read the same row of a.
    """

    chosen: Operand
    matrices: int
    share: int


def can_split(block: int, bits: int) -> bool:
    """True where blocks are whole words, so that lanes can take them."""
    return block * bits % 32 == 0


def expert_product(
    target: Target, y: Operand, a: Operand, b: Packed, product: Product, experts: Experts
) -> tuple[Dispatch, ...]:
    """y[m] = a[m // share] @ b[chosen[m]]^T: only the matrices chosen are read."""
    if not y.type.size:
        return ()
    return (_skinny(target, y, _Rows.of(a, experts), b, product),)


def _fits_lanes(b: Packed, p: Product) -> bool:
    """Codes can be split across lanes where no row ends, and no block ends, within a chunk."""
    return not b.is_codes or (p.k % CHUNK == 0 and b.block % CHUNK == 0)


def _unit(b: Packed) -> tuple[int, int]:
    """Words a lane loads at a time, and the weights in them: at most CHUNK, a block, and a vec4."""
    chunk = min(CHUNK, 128 // b.bits)
    while b.block % chunk:
        chunk //= 2
    return chunk * b.bits // 32, chunk


@dataclass(frozen=True, slots=True)
class Split:
    """How `skinny` splits a product across lanes.

    Attributes:
        lanes: invocations that share a column: many where columns alone fill no GPU, else so few that each has some
            chunks. It depends on n, k and the device alone, since the order of sums does on it.
        columns: of an invocation, which share what is read of a.
        threads: invocations of a workgroup.
    """

    lanes: int
    columns: int
    threads: int = THREADS

    @property
    def wide(self) -> int:
        """Columns of a workgroup."""
        return self.threads // self.lanes * self.columns


def _split(target: Target, chunks: int, n: int, m: int) -> Split:
    """Choose lanes, columns and threads: a fit to measurements of ten decoder shapes at a GPU's lowest clock.

    Each shape was measured alone, in 30 to 90 configurations.
    """
    threads = target.widest(2 * THREADS if chunks >= LONG else THREADS)
    most = threads // 4 if chunks >= LONG else 64 if n < 768 else 32
    lanes = 8
    while lanes < min(chunks, most):
        lanes *= 2
    columns, widest = max(1, 4 * lanes // threads), 2 if m > 1 else 8
    enough = 100 if lanes > 32 else 250
    while columns < widest and n * lanes // (threads * 2 * columns) >= enough:
        columns *= 2
    return Split(lanes, columns, threads)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Where `skinny` has the rows of a from.

    Attributes:
        kind: of the kernel's name. a: the tensor; others: what else is read, by name.
        defines, params: of the kernel.
    """

    kind: str
    a: Operand
    others: dict[str, Operand] = field(default_factory=dict)
    defines: dict[str, int] = field(default_factory=dict)
    params: dict[str, float] = field(default_factory=dict)

    @staticmethod
    def of(given: Operand | Normed | Partials, experts: Experts | None = None, half: bool = False) -> _Rows:
        """Rows as they are, for experts or not, to be normalised, or to be reduced (`half`: as float16)."""
        if isinstance(given, Normed):
            params = {"epsilon": given.epsilon}
            return _Rows("skinny_normed", given.x, {"gain": given.gain}, {"NORM": 1}, params)
        if isinstance(given, Partials):
            _, _, heads, queries, size = given.parts.type.shape
            defines = {"SHARES": given.splits, "HEAD": size, "HALF": half, "EMPTY_ZERO": given.empty_zero}
            params = {"heads": heads, "queries": queries}
            return _Rows("skinny_merged", given.parts, {"stats": given.stats}, defines, params)
        if experts is not None:
            params = {"matrices": experts.matrices, "share": experts.share}
            return _Rows("experts", given, {"experts": experts.chosen}, {"EXPERTS": 1}, params)
        return _Rows("skinny", given)


def _skinny(target: Target, y: Operand, given: _Rows, b: Packed, p: Product, paired: bool = False) -> Dispatch:
    """`shaders/products/matmul_nbits_skinny.wgsl`. Lanes and chunks, so the sums' order, depend on n and k alone."""
    unit, chunk = _unit(b)
    chunks = p.k // chunk if b.is_codes else b.blocks * b.block // chunk
    most = 1 if "EXPERTS" in given.defines else min(ROWS, upper(p.m))
    rows, split, steps = _staged(target, p, chunks, chunk, "NORM" in given.defines, most)
    strips, row_groups = -(-p.n // split.wide), -(-p.m // rows)
    defines = {
        "VEC_A": p.k % 4 == 0,
        "VEC_Y": p.n % 4 == 0 and not paired,
        f"UNIT{unit}": unit > 1,
        "PAIRED": paired,
        "ONCE": steps * split.lanes >= chunks,
        "SHUFFLE": _exchanging(target, split) > 1,
        **b.defines,
        **given.defines,
        "UNIT": unit,
        "CHUNK": chunk,
        "LANES": split.lanes,
        "THREADS": split.threads,
        "COLS": split.columns,
        "ROWS": rows,
        "STEPS": steps,
        "SUBGROUP": _exchanging(target, split),
    }
    read = {"a": given.a, "b": in_words(b.operand, unit), **b.operands, **given.others}
    groups = strips * row_groups
    values = {
        "m": p.m,
        "n": p.n,
        "k": p.k,
        "chunks": chunks,
        "blocks": b.blocks,
        "zero_pitch": b.zero_pitch,
        "row_groups": row_groups,
        "groups": groups,
        **given.params,
    }
    made = launch("matmul_nbits_skinny", {**read, "y": y}, target.fold(groups), defines, values, p.flops)
    return made.called(f"{b.name}_{given.kind}_x{split.lanes}")


def _staged(target: Target, p: Product, chunks: int, chunk: int, is_normed: bool, most: int) -> tuple[int, Split, int]:
    """Rows of a workgroup, `most` at most and m split evenly; lanes of a column; chunks of a lane at a time."""
    for rows in range(most, 0, -1):
        split = _split(target, chunks, p.n, rows)
        sides = split.lanes // min(split.lanes, _exchanging(target, split))
        capacity = min(STAGED, target.limits.workgroup_bytes - 4 * rows * (split.wide + is_normed) * sides)
        fits = capacity // ((5 if is_normed else 4) * rows * chunk * split.lanes)
        if fits or rows == 1:
            break
    groups = -(-upper(p.m) // rows)
    rows, whole = -(-upper(p.m) // groups), -(-chunks // split.lanes)
    pieces = -(-whole // max(1, min(UNDERWAY // split.columns, fits)))
    return rows, split, -(-whole // pieces)


def _exchanging(target: Target, split: Split) -> int:
    """Invocations that exchange numbers without workgroup memory, for all columns of one; else 1."""
    return target.subgroup if target.subgroup >= split.columns else 1


def _direct(target: Target, y: Operand, a: Operand, b: Packed, p: Product, paired: bool = False) -> Dispatch:
    """`shaders/products/matmul_nbits_direct.wgsl`, for software adapters."""
    rows = 8 if p.m > 4 else 4 if p.m > 1 else 1
    step = CHUNK if b.is_codes else b.block
    columns = -(-p.n // 4)
    jobs = columns * -(-p.m // rows)
    defines = {"VEC_A": p.k % 4 == 0, "VEC_Y": p.n % 4 == 0 and not paired, "PAIRED": paired, **b.defines}
    defines |= {"ROWS": rows, "STEP": step}
    tensors = {"a": a, "b": b.operand, **b.operands, "y": y}
    values = {"m": p.m, "n": p.n, "k": p.k, "blocks": -(-p.k // step), "zero_pitch": b.zero_pitch}
    values |= {"columns": columns, "jobs": jobs}
    made = launch("matmul_nbits_direct", tensors, target.grid(jobs), defines, values, p.flops)
    return made.called(f"{b.name}_direct_{rows}")

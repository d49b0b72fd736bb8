"""Products of rows rounded to 8 bits and packed weights: four products at a time (dot4I8Packed), in tiles.

A separate dispatch rounds the rows, with a scale for each 32 numbers. Results differ from the product of floats by the
rounding, up to 0.4 % of the largest number of a chunk: for models that permit it (`accuracy_level` 4).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import MappingProxyType

from pyruntime.ir import DType, multiple
from pyruntime.kernels.ir.costs import Work
from pyruntime.kernels.ir.dispatch import Dispatch, Operand, scratch
from pyruntime.kernels.ir.launch import launch
from pyruntime.kernels.products.candidates import ProductProblem, sum_work
from pyruntime.kernels.products.description import Product
from pyruntime.kernels.products.integer_matmul import PACKED_DOT
from pyruntime.kernels.products.matmul import sum_splits
from pyruntime.kernels.products.packed_weights import Packed, in_words
from pyruntime.kernels.selection.candidates import Candidate, Family
from pyruntime.target import Target

__all__ = ["CHUNK", "DOTS", "Tile", "dot_product", "takes_dots"]

CHUNK = 32
"""Numbers of a row that share a scale, and that a step takes."""

POLYFILLED = "apple"
"""`adapter.info.vendor` of GPUs that have no instruction for it: four multiplications are as many there, or more."""

THREADS = 128
"""Invocations of a workgroup."""

LEAST_STEPS = 2
"""Chunks that a share of k has at least."""

EFFICIENCY = {(64, 128): 1.6, (64, 64): 1.45, (32, 128): 1.3, (32, 64): 1.1}
"""Operations of tiles in parts of a device's float32 ones: with these the cheapest of 16 candidates takes 1 % more than
the fastest one on average, over 44 products of 16 to 512 rows (H200)."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A configuration of `shaders/products/matmul_packed_dot.wgsl`.

    Attributes:
        high, wide: rows and columns of a workgroup's results. splits: shares of k over workgroups.
    """

    high: int
    wide: int
    splits: int = 1

    @property
    def kernel(self) -> str:
        """Name of the kernel, such as '64x128_split'. One kernel serves any number of splits."""
        return f"{self.high}x{self.wide}{'_split' if self.splits > 1 else ''}"

    @property
    def name(self) -> str:
        """Name of the candidate: '64x128_split4'."""
        return f"{self.kernel}{self.splits if self.splits > 1 else ''}"

    def tiles(self, m: int, n: int) -> int:
        """Tiles of m rows and n columns."""
        return -(-m // self.high) * -(-n // self.wide)

    def steps(self, k: int) -> int:
        """Number of chunks of k in each part of split-K."""
        chunks = -(-k // CHUNK)
        return -(-chunks // self.splits)


def _refuses(tile: Tile) -> Callable[[ProductProblem, Target], str]:
    def refuses(p: ProductProblem, target: Target) -> str:
        return "shares of k would be too short" if tile.splits > 1 and tile.steps(p.k) < LEAST_STEPS else ""

    return refuses


def _work(tile: Tile) -> Callable[[ProductProblem, Target], tuple[Work, ...]]:
    def work(p: ProductProblem, target: Target) -> tuple[Work, ...]:
        steps = tile.steps(p.k)
        first = Work(
            groups=tile.tiles(p.m, p.n) * tile.splits,
            threads=THREADS,
            flops=2.0 * tile.high * tile.wide * CHUNK * steps,
            nbytes=p.m * p.k + 4.0 * p.m * p.n * tile.splits + p.n * p.k * p.bits / 8,
            efficiency=EFFICIENCY[tile.high, tile.wide],
            steps=steps,
        )
        return (first,) if tile.splits == 1 else (first, sum_work(p.m * p.n, tile.splits))

    return work


def _candidate(tile: Tile) -> Candidate[ProductProblem, Tile]:
    def kernel(p: ProductProblem) -> str:
        whole = tile.steps(p.k) * tile.splits == -(-p.k // CHUNK)
        return f"{tile.kernel} {p.bits}{'' if whole else ' guarded'}{'' if p.n % 4 else ' quads'}"

    return Candidate(tile.name, tile, _refuses(tile), _work(tile), kernel=kernel)


DOTS: Family[ProductProblem, Tile] = Family(
    "packed_dot",
    (
        *(_candidate(Tile(high, wide, z)) for high, wide in EFFICIENCY for z in (1, 4, 8)),
        _candidate(Tile(64, 128, 2)),
    ),
    MappingProxyType(
        {"packed_dot": "packed weights by rows of 8 bits where accuracy_level permits it; without: by rows of floats"}
    ),
)
"""Products of 8 bits with packed weights."""


def takes_dots(target: Target, b: Packed) -> bool:
    """True where the device has the instruction, and weights less zero points are 8 bits, with a scale for a chunk."""
    if target.is_software or not target.allows("packed_dot"):
        return False
    if PACKED_DOT not in target.features or target.vendor == POLYFILLED:
        return False
    if b.is_codes or b.is_grouped or b.block % CHUNK or "FLOAT_ZEROS" in b.defines:
        return False
    return b.bits < 8 or "ZEROS" not in b.defines


def dot_product(target: Target, y: Operand, a: Operand, b: Packed, p: Product) -> tuple[Dispatch, ...]:
    """y = a @ b^T, a rounded to 8 bits in chunks; `takes_dots` says where that is possible.

    Args:
        y: [m, n]; a: [m, k], of float types. b: [n, k].
    """
    chunks = -(-p.k // CHUNK)
    rows = scratch(DType.UINT32, p.m, chunks, CHUNK // 4)
    scales = scratch(DType.FLOAT, p.m, chunks)
    problem = replace(ProductProblem.of(p, target), bits=b.bits)
    tile = DOTS.choose(problem, target).way
    rounded = _rounded(target, rows, scales, a, b, p)
    if tile.splits == 1:
        return rounded, _product(target, y, rows, scales, b, p, tile)
    parts = scratch(DType.FLOAT, tile.splits, 1, p.m, p.n)
    return (
        rounded,
        _product(target, parts, rows, scales, b, p, tile),
        sum_splits(target, y, parts, p, tile.splits),
    )


def _rounded(target: Target, rows: Operand, scales: Operand, a: Operand, b: Packed, p: Product) -> Dispatch:
    """Return the dispatch of `shaders/rows/quantize_chunks.wgsl`, which rounds activations to int8."""
    chunks = -(-p.k // CHUNK)
    lanes = min(4, b.bits)  # an invocation has what a word of weights meets
    jobs = p.m * chunks * lanes
    defines, values = (
        {"BITS": b.bits, "LANES": lanes, "VEC": multiple(p.k, 4)},
        {"k": p.k, "chunks": chunks, "jobs": jobs},
    )
    return launch("quantize_chunks", {"a": a, "y": rows, "scales": scales}, target.grid(jobs), defines, values)


def _product(target: Target, y: Operand, rows: Operand, scales: Operand, b: Packed, p: Product, tile: Tile) -> Dispatch:
    """`shaders/products/matmul_packed_dot.wgsl`; y: [m, n], or the shares of it."""
    chunks = -(-p.k // CHUNK)
    words = tile.wide * b.bits // THREADS
    defines = {
        "TILE_M": tile.high,
        "TILE_N": tile.wide,
        "ROWS": tile.high // 8,
        "QUADS": tile.wide // 64,
        "BITS": b.bits,
        "BLOCK": b.block,
        "SPLIT": tile.splits > 1,
        "GUARD": bool(chunks % tile.splits),
        "FOURS": words % 4 == 0,
        "BITS8": b.bits == 8,
        "ZEROS": "ZEROS" in b.defines,
        "VEC_Y": multiple(p.n, 4),
    }
    tensors = {"a": rows, "b": in_words(b.operand), "scales_a": scales, "y": y, **b.operands}
    m_tiles, n_tiles = -(-p.m // tile.high), -(-p.n // tile.wide)
    groups = m_tiles * n_tiles * tile.splits
    values = {
        "m": p.m,
        "n": p.n,
        "chunks": chunks,
        "steps": tile.steps(p.k),
        "m_tiles": m_tiles,
        "n_tiles": n_tiles,
        "groups": groups,
        "blocks": b.blocks,
        "zero_pitch": b.zero_pitch,
    }
    made = launch("matmul_packed_dot", tensors, target.fold(groups), defines, values, p.flops)
    return made.called(f"matmul_dot_{b.bits}bits_{tile.kernel}")

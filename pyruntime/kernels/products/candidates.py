"""The kernels of matrix products as candidates.

s      tiles of 32 x 32, 4 x 4 an invocation, k split over up to 4 slices of a workgroup
m      tiles of 64 x 64, 8 x 4 an invocation, or the same with slices
l      tiles of 64 x 128, 8 x 8 an invocation
half   the same tiles of float16, multiplied in float16, where the device has shader-f16
matrix tiles of float16 that subgroups multiply as matrices and sum in float32, where the device has such
split  k is split across workgroups; a second dispatch adds the partial sums
skinny m <= 8, or n = 1: every element of b (of a) is read once, k is split within a workgroup
direct no workgroup memory: four or eight rows an invocation, as adapters that run on a processor want it
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Literal, NamedTuple

from pyruntime.kernels.ir.costs import Work
from pyruntime.kernels.ir.node import facts_of
from pyruntime.kernels.products.description import Product
from pyruntime.kernels.products.tiling import LARGE, MEDIUM, SMALL, AnyTiling, MatrixTiling, Tiling
from pyruntime.kernels.selection.candidates import Candidate, Family
from pyruntime.target import WORKGROUP, Target

__all__ = [
    "EIGHT_JOBS",
    "MATRICES",
    "PRODUCTS",
    "SKINNY_ROWS",
    "TEXTS",
    "TILES",
    "ProductProblem",
    "Way",
    "half_refuses",
    "large_refuses",
    "skinny_split",
    "tile_work",
]

SKINNY_ROWS = 8

SKINNY_THREADS = 256
"""Invocations a workgroup of a skinny product; fewer where the device takes fewer."""
"""Products of at most this many rows can read b once instead of tiling it."""

EFFICIENCY = {SMALL.tile: 0.49, MEDIUM.tile: 0.72, LARGE.tile: 0.78}
"""Part of a device's operations that tiles reach, by their size."""

HALF_EFFICIENCY = {SMALL.tile: 0.8, MEDIUM.tile: 1.0, LARGE.tile: 1.0}
"""The same of tiles of float16, in float32 operations of the device."""

HALF_SLICED = 0.9
"""`SLICED` of those."""

HALF_STEP = 1.3
"""What a step of a tile of float16 costs, of a step of float32: it is twice as long."""


class MatrixCosts(NamedTuple):
    """What a tile of subgroup matrices costs. Fitted to 172 measurements on an H200 (2026-11-30, 27 shapes).

    Attributes:
        efficiency: part of the device's float32 operations that it reaches: more than 1.
        step: of a step of float32.
        merges: for its results, which go through workgroup memory.
    """

    efficiency: float
    step: float
    merges: float


MATRIX_COSTS = {
    (32, 32): MatrixCosts(1.26, 0.01, 1.0),
    (64, 64): MatrixCosts(3.05, 0.78, 1.1),
    (128, 128): MatrixCosts(5.4, 1.2, 6.2),
}

LEAST_HALF = 128
"""k from which on float16 is multiplied in float16: shorter ones are few steps either way."""

TEXTS = {SMALL.tile: 1.0, MEDIUM.tile: 1.0, LARGE.tile: 1.5, (128, 128): 1.5}
"""What tiles take to compile: those of 64 x 128 have a thousand lines, where those of 64 x 64 have 660."""

SLICED = 0.947
"""Part of that which is left when k is split within a workgroup, for each doubling."""

ADDING = 0.019
"""Part of a device's operations that adding shares reaches: it waits for memory."""

EIGHT_JOBS = 128
"""Invocations of an int8 direct kernel, or of a convolution, from which on each makes eight rows, or channels."""

LEAST_STEPS = 2
"""Steps that a share of k has at least."""

LEAST_LARGE = 8
"""Steps from which on large tiles are faster than the next ones: filling and emptying them takes longer."""


@dataclass(frozen=True)
class ProductProblem:
    """A product for the choice of its kernel: the most its sizes can be.

    Attributes:
        known_rows: m is the same in every run of the plan.
        bits: of an element of b.
        norm_follows: the rows of the product are normalised, by the kernel that adds shares where there is one.
        half: a and b are float16, and the device has shader-f16.
    """

    m: int
    n: int
    k: int
    batches: int = 1
    trans_b: bool = False
    known_rows: bool = True
    bits: int = 32
    norm_follows: bool = False
    half: bool = False

    @staticmethod
    def of(product: Product, target: Target, half: bool = False) -> ProductProblem:
        """The problem of a product; `half`: of float16."""
        most, known = product.most(), isinstance(product.m, int)
        follows = facts_of(target).norm_follows and target.allows("matmul_norm")
        return ProductProblem(most.m, most.n, most.k, most.batches, product.trans_b, known, 32, follows, half)

    @property
    def key(self) -> str:
        """'128x3072x768', rows by columns by k, then batches and what else matters."""
        batches = f"x{self.batches}" if self.batches > 1 else ""
        told = (not self.known_rows, "open"), (self.trans_b, "t"), (self.norm_follows, "norm"), (self.half, "half")
        more = (name for is_so, name in told if is_so)
        bits = f"bits{self.bits}" if self.bits != 32 else ""
        return f"{self.m}x{self.n}x{self.k}{batches}{''.join(more)}{bits}"

    @cached_property
    def product(self) -> Product:
        """The problem as a `Product`, for the cost model."""
        return Product(self.m, self.n, self.k, (self.batches,), (0,), (0,))


@dataclass(frozen=True, slots=True)
class Way:
    """A candidate's kernel: 'tiled' with `tiling`, 'skinny', 'few_columns', or 'direct' with `rows` per invocation."""

    kernel: Literal["tiled", "skinny", "few_columns", "direct"]
    tiling: AnyTiling | None = None
    rows: int = 0


def tile_work(tiling: AnyTiling, p: ProductProblem, unpack: float = 1.0) -> tuple[Work, ...]:
    """Return the work of the dispatches of a tiled product.

    Args:
        unpack: the part of the rate that is left where b is unpacked on its way.
    """
    steps = tiling.steps(p.k)
    if isinstance(tiling, MatrixTiling):
        efficiency, step, merges = MATRIX_COSTS[tiling.tile]
    else:
        sliced = (HALF_SLICED if tiling.half else SLICED) ** math.log2(tiling.slices)
        efficiency = (HALF_EFFICIENCY if tiling.half else EFFICIENCY)[tiling.tile] * unpack * sliced
        step = HALF_STEP if tiling.half else 1.0
        merges = math.log2(tiling.slices) * tiling.results / 16
    width = 2.0 if p.half else 4.0
    read = p.batches * (width * p.m * p.k + p.n * p.k * (16 if p.half else p.bits) / 8)
    moved = read + p.batches * p.m * p.n * (4.0 * tiling.splits if tiling.splits > 1 else width)
    first = Work(
        groups=tiling.groups(p.product),
        threads=tiling.threads,
        flops=2.0 * tiling.high * tiling.wide * tiling.depth * tiling.slices * steps,
        nbytes=moved,
        efficiency=efficiency,
        steps=step * steps,
        merges=merges,
    )
    if tiling.splits > 1:
        return first, sum_work(p.batches * p.m * p.n, tiling.splits)
    return first, *norm_work(p)


def norm_work(p: ProductProblem) -> tuple[Work, ...]:
    """Return the work of the dispatch that normalizes rows, if one follows the product."""
    size = p.batches * p.m * p.n
    return (Work(p.m, WORKGROUP, 8.0 * p.n, 8.0 * size, ADDING, stops=0),) if p.norm_follows else ()


def sum_work(size: int, splits: int) -> Work:
    """Return the work of the dispatch that sums the partial results of split-K."""
    groups = -(-size // (4 * WORKGROUP))
    return Work(groups, WORKGROUP, 4.0 * WORKGROUP * splits, 4.0 * size * (splits + 1), ADDING, stops=0)


def large_refuses(tiling: AnyTiling, k: int) -> str:
    """Why a tile is too large for a product over k; "" where it is not."""
    return "k is too short" if tiling.tile == LARGE.tile and tiling.steps(k) < LEAST_LARGE else ""


def half_refuses(tiling: AnyTiling, is_half: bool, k: int, target: Target) -> str:
    """Why a tile of float16 is not for a product; "" where it is, or is one of float32."""
    if isinstance(tiling, Tiling) and not tiling.half:
        return ""
    if not is_half:
        return "operands are not float16, or the device has no shader-f16"
    if isinstance(tiling, Tiling):
        return "k is too short" if k < LEAST_HALF else ""
    if target.matrix_unit is None:
        return "the device has no subgroup matrices of float16, or subgroups of several sizes"
    return "" if tiling.on(target).is_whole else "the device's matrices do not divide a tile"


def _tile_refuses(tiling: AnyTiling) -> Callable[[ProductProblem, Target], str]:
    def refuses(p: ProductProblem, target: Target) -> str:
        if reason := half_refuses(tiling, p.half, p.k, target):
            return reason
        if tiling.slices * tiling.splits > 1 and tiling.steps(p.k) < LEAST_STEPS:
            return "shares of k would be too short"
        return large_refuses(tiling, p.k) or tiling.on(target).fits(target.limits)

    return refuses


def _tile_switches(tiling: AnyTiling) -> tuple[str, ...]:
    if isinstance(tiling, MatrixTiling):
        return "matmul_matrix", *(("matmul_split",) if tiling.splits > 1 else ())
    return (
        *(("matmul_half",) if tiling.half else ()),
        *(("matmul_large",) if tiling.tile == LARGE.tile else ()),
        *(("matmul_slices",) if tiling.tile == MEDIUM.tile and tiling.slices > 1 else ()),
        *(("matmul_split",) if tiling.splits > 1 else ()),
    )


TILINGS = (
    *(replace(SMALL, slices=s) for s in (1, 2, 4)),
    *(replace(SMALL, splits=z) for z in (2, 4)),
    *(replace(SMALL, slices=s, splits=8) for s in (1, 2, 4)),
    *(replace(MEDIUM, slices=s) for s in (1, 2)),
    *(replace(MEDIUM, splits=z) for z in (2, 4, 8)),
    *(replace(LARGE, splits=z) for z in (1, 2, 4)),
)


HALVES = (
    *(replace(SMALL, slices=s, half=True) for s in (1, 2, 4)),
    replace(SMALL, splits=4, half=True),
    *(replace(MEDIUM, splits=z, half=True) for z in (1, 2, 4, 8)),
    *(replace(LARGE, splits=z, half=True) for z in (1, 2, 4)),
)


MATRICES = (
    *(MatrixTiling(32, 32, (2, 2), 128, splits=z) for z in (1, 2, 4)),
    *(MatrixTiling(64, 64, (2, 2), 64, splits=z) for z in (1, 2, 4, 8)),
    *(MatrixTiling(128, 128, (2, 2), 32, splits=z) for z in (1, 2)),
)


def tile_kernel(tiling: AnyTiling, k: int, *columns: int) -> str:
    """Tells texts of a tiled product apart: shares of k have one, and a guard where the last one is not whole."""
    whole = not k % (tiling.depth * tiling.slices * tiling.splits)
    parts = (tiling.unsplit, "split" if tiling.splits > 1 else "", "" if whole else "guarded")
    return " ".join((*parts, *("" if n % 4 else "quads" for n in columns)))


def tile_candidates(
    *switches: str, tilings: tuple[AnyTiling, ...] = TILINGS, unpack: float = 1.0
) -> tuple[Candidate[ProductProblem, Way], ...]:
    """Return a candidate for each tiling.

    `unpack`: the fraction of its rate that remains where b is unpacked while it is loaded.
    """

    def work(tiling: AnyTiling) -> Callable[[ProductProblem, Target], tuple[Work, ...]]:
        return lambda p, target: tile_work(tiling, p, unpack)

    def kernel(tiling: AnyTiling) -> Callable[[ProductProblem], str]:
        return lambda p: f"{tile_kernel(tiling, p.k, p.k, p.n)} {p.trans_b} {p.norm_follows}"

    return tuple(
        Candidate(
            t.name,
            Way("tiled", t),
            _tile_refuses(t),
            work(t),
            (*switches, *_tile_switches(t)),
            TEXTS[t.tile],
            kernel(t),
        )
        for t in tilings
    )


def skinny_split(target: Target, k: int, trans_b: bool) -> tuple[int, int]:
    """Columns, or quads of columns, of a workgroup of a skinny product, and shares of k: more the longer k is."""
    cols = (4 if k >= 2048 else 8) if trans_b else (2 if k >= 2048 else 4)
    return cols, target.widest(SKINNY_THREADS) // cols


def _few_work(target: Target, m: int, n: int, p: ProductProblem, trans_b: bool) -> tuple[Work, ...]:
    cols, shares = skinny_split(target, p.k, trans_b)
    wide = cols if trans_b else 4 * cols
    # Three quarters of the bandwidth: few loads of an invocation are on their way at once.
    moved = p.batches * (4.0 * m * p.k + n * p.k * p.bits / 8 + 4 * m * n) / 0.75
    loads = p.k / shares / (4 if trans_b else 1)
    groups = -(-n // wide) * p.batches
    stops = 1 + math.log2(shares)
    flops = 2.0 * m * wide * p.k
    return Work(groups, cols * shares, flops, moved, 0.4, steps=1, loads=loads, stops=stops), *norm_work(p)


def _skinny_refuses(p: ProductProblem, target: Target) -> str:
    if not p.known_rows:
        return "runs may bring more rows"
    return "" if p.m <= SKINNY_ROWS else f"for at most {SKINNY_ROWS} rows"


def _few_columns_refuses(p: ProductProblem, target: Target) -> str:
    return "" if p.n == 1 and p.m > 1 else "for one column"


def direct_work(target: Target, m: int, columns: int, batches: int, k: int, rows: int, nbytes: float) -> Work:
    """A kernel whose invocations make `rows` rows of four columns, from where the operands are."""
    jobs = -(-columns // 4) * -(-m // rows) * batches
    # Of a workgroup only the invocations that have a job take time, one after another on a processor.
    busy = min(jobs, WORKGROUP)
    efficiency = {4: 0.75, 8: 1.0}[rows] * target.speed.direct
    return Work(
        -(-jobs // WORKGROUP),
        WORKGROUP,
        2.0 * busy * 4 * rows * k,
        nbytes,
        efficiency,
        loads={4: 1.8, 8: 2.8}[rows] * k,
        stops=0,
    )


def _direct_candidate(rows: int) -> Candidate[ProductProblem, Way]:
    def refuses(p: ProductProblem, target: Target) -> str:
        if p.n == 1 and target.allows("matmul_skinny") and not target.is_serial:
            return "of a quad of columns three would be empty"
        return "for more than four rows" if rows == 8 and p.m <= 4 else ""

    def work(p: ProductProblem, target: Target) -> tuple[Work, ...]:
        moved = 4.0 * p.batches * (p.m * p.k + p.n * p.k + p.m * p.n)
        return direct_work(target, p.m, p.n, p.batches, p.k, rows, moved), *norm_work(p)

    return Candidate(f"direct_{'eight' if rows == 8 else 'four'}", Way("direct", rows=rows), refuses, work)


_TILE_SWITCHES = {
    "matmul_half": "float16 multiplied in float16, where the device has shader-f16; without: in float32",
    "matmul_matrix": "float16 multiplied by subgroup matrices, where the device has them; without: by each invocation",
    "matmul_large": "tiles of 64 x 128; without: of 64 x 64",
    "matmul_slices": "k of tiles of 64 x 64 split within a workgroup; without: over workgroups, or not",
    "matmul_split": "k split across workgroups, a second kernel adds; without: a workgroup sums all of k",
}

TILES: Family[ProductProblem, Way] = Family(
    "tiles", tile_candidates(tilings=(*TILINGS, *HALVES, *MATRICES)), MappingProxyType(_TILE_SWITCHES)
)
"""Products that only tiles can make: with zero points, say."""

PRODUCTS: Family[ProductProblem, Way] = Family(
    "product",
    (
        Candidate(
            "skinny",
            Way("skinny"),
            _skinny_refuses,
            lambda p, target: _few_work(target, p.m, p.n, p, p.trans_b),
            ("matmul_skinny",),
        ),
        Candidate(
            "few_columns",
            Way("few_columns"),
            _few_columns_refuses,
            lambda p, target: _few_work(target, 1, p.m, p, True),
            ("matmul_skinny",),
        ),
        *tile_candidates("matmul_tiled", tilings=(*TILINGS, *HALVES, *MATRICES)),
        _direct_candidate(8),
        _direct_candidate(4),
    ),
    MappingProxyType(
        {
            "matmul_tiled": "products through workgroup memory; without: from where the operands are",
            "matmul_skinny": "products of at most eight rows read the weights once; without: as any product",
            **_TILE_SWITCHES,
        }
    ),
)
"""Products of floats and of integers."""

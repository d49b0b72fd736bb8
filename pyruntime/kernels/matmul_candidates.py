"""The kernels of matrix products as candidates.

s      tiles of 32 x 32, 4 x 4 an invocation, k split over up to 4 slices of a workgroup
m      tiles of 64 x 64, 8 x 4 an invocation, or the same with slices
l      tiles of 128 x 128, 8 x 8 an invocation
split  k dealt out over workgroups; a second dispatch adds the shares
few    m <= 8, or n = 1: every element of b (of a) is read once, k is split within a workgroup
direct no workgroup memory: four or eight rows an invocation, as adapters that run on a processor want it
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import MappingProxyType

from pyruntime.kernels.candidates import Candidate, Family
from pyruntime.kernels.costs import Work
from pyruntime.kernels.dispatch import WORKGROUP, Target
from pyruntime.kernels.product import Product
from pyruntime.kernels.tiling import LARGE, MEDIUM, SMALL, Tiling

__all__ = ["EIGHT_JOBS", "FEW_ROWS", "PRODUCTS", "TILES", "ProductProblem", "Way", "few_rows_shares", "tile_work"]

FEW_ROWS = 8
"""Products of at most this many rows can read b once instead of tiling it."""

EFFICIENCY = {SMALL.tile: 0.51, MEDIUM.tile: 0.82, LARGE.tile: 0.90}
"""Part of a device's operations that tiles reach, by their size."""

EIGHT_JOBS = 128
"""Invocations of a direct kernel of bytes, or of a convolution, from which on each makes eight rows, or channels."""

LEAST_STEPS = 2
"""Steps that a share of k has at least."""


@dataclass(frozen=True, slots=True)
class ProductProblem:
    """A product for the choice of its kernel: the most its sizes can be.

    Attributes:
        known_rows: m is the same in every run of the plan.
        bits: of an element of b.
    """

    m: int
    n: int
    k: int
    batches: int = 1
    trans_b: bool = False
    known_rows: bool = True
    bits: int = 32

    @staticmethod
    def of(product: Product, bits: int = 32) -> ProductProblem:
        """The problem of a product."""
        most = product.most()
        return ProductProblem(most.m, most.n, most.k, most.batches, product.trans_b, isinstance(product.m, int), bits)

    @property
    def key(self) -> str:
        """'128x3072x768', rows by columns by k, then batches and what else matters."""
        batches = f"x{self.batches}" if self.batches > 1 else ""
        return f"{self.m}x{self.n}x{self.k}{batches}{'' if self.known_rows else 'open'}{'t' if self.trans_b else ''}"

    @property
    def product(self) -> Product:
        """As a product."""
        return Product(self.m, self.n, self.k, (self.batches,), (0,), (0,))


@dataclass(frozen=True, slots=True)
class Way:
    """What a candidate runs: 'tiled' with `tiling`, 'few_rows', 'few_columns', 'direct' with `rows` an invocation."""

    kernel: str
    tiling: Tiling | None = None
    rows: int = 0


def tile_work(tiling: Tiling, p: ProductProblem, efficiency: float = 0.0) -> tuple[Work, ...]:
    """The dispatches of a tiled product."""
    steps = tiling.steps(p.k)
    tile = tiling.tile
    moved = 4.0 * p.batches * (p.m * p.k + p.m * p.n * tiling.splits) + p.batches * p.n * p.k * p.bits / 8
    first = Work(
        groups=tiling.groups(p.product),
        threads=tiling.threads,
        flops=2.0 * tile * tile * 16 * tiling.slices * steps,
        nbytes=moved,
        efficiency=efficiency or EFFICIENCY[tile],
        steps=steps,
        chain=16.0 * tiling.results * steps,
        merges=math.log2(tiling.slices) * tiling.results / 16,
    )
    return (first,) if tiling.splits == 1 else (first, sum_work(p.batches * p.m * p.n, tiling.splits))


def sum_work(size: int, splits: int) -> Work:
    """The dispatch that adds shares."""
    groups = -(-size // (4 * WORKGROUP))
    return Work(groups, WORKGROUP, 4.0 * WORKGROUP * splits, 4.0 * size * (splits + 1), 0.2, rests=1, stops=0)


def _tile_refuses(tiling: Tiling) -> Callable[[ProductProblem, Target], str]:
    def refuses(p: ProductProblem, target: Target) -> str:
        if tiling.slices * tiling.splits > 1 and tiling.steps(p.k) < LEAST_STEPS:
            return "shares of k would be too short"
        return tiling.fits(target.limits)

    return refuses


def _tile_switches(tiling: Tiling) -> tuple[str, ...]:
    return (
        *(("matmul_large",) if tiling.tile == LARGE.tile else ()),
        *(("matmul_slices",) if tiling.tile == MEDIUM.tile and tiling.slices > 1 else ()),
        *(("matmul_split",) if tiling.splits > 1 else ()),
    )


TILINGS = (
    *(replace(SMALL, slices=s, splits=z) for z in (1, 2, 4, 8) for s in (1, 2, 4)),
    *(replace(MEDIUM, slices=s) for s in (1, 2, 4)),
    *(replace(MEDIUM, splits=z) for z in (2, 4, 8)),
    LARGE,
)


def tile_candidates(*switches: str, unpack: float = 1.0) -> tuple[Candidate[ProductProblem, Way], ...]:
    """All tilings; `unpack`: part of their rate that is left where b is unpacked on its way."""

    def work(tiling: Tiling) -> Callable[[ProductProblem, Target], tuple[Work, ...]]:
        return lambda p, target: tile_work(tiling, p, EFFICIENCY[tiling.tile] * unpack)

    return tuple(
        Candidate(t.name, Way("tiled", t), _tile_refuses(t), work(t), (*switches, *_tile_switches(t))) for t in TILINGS
    )


def few_rows_shares(k: int, trans_b: bool) -> tuple[int, int]:
    """Columns, or quads of columns, of a workgroup of few rows, and shares of k: more of them the longer k is."""
    if trans_b:
        return (4, 64) if k >= 2048 else (8, 32)
    return (2, 128) if k >= 2048 else (4, 64)


def _few_work(m: int, n: int, p: ProductProblem, trans_b: bool) -> tuple[Work, ...]:
    cols, shares = few_rows_shares(p.k, trans_b)
    wide = cols if trans_b else 4 * cols
    # Three quarters of the bandwidth: few loads of an invocation are on their way at once.
    moved = p.batches * (4.0 * m * p.k + n * p.k * p.bits / 8 + 4 * m * n) / 0.75
    chain = p.k / shares * m * (1 if trans_b else 4)
    groups = -(-n // wide) * p.batches
    stops = 1 + math.log2(shares)
    return (Work(groups, 256, 2.0 * m * wide * p.k, moved, 0.4, steps=1, chain=chain, stops=stops),)


def _few_rows_refuses(p: ProductProblem, target: Target) -> str:
    if not p.known_rows:
        return "runs may bring more rows"
    return "" if p.m <= FEW_ROWS else f"for at most {FEW_ROWS} rows"


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
        chain=16.0 * rows * k,
        rests=1,
        stops=0,
    )


def _direct_candidate(rows: int) -> Candidate[ProductProblem, Way]:
    def refuses(p: ProductProblem, target: Target) -> str:
        if p.n == 1 and target.allows("matmul_few_rows"):
            return "of a quad of columns three would be empty"
        return "for more than four rows" if rows == 8 and p.m <= 4 else ""

    def work(p: ProductProblem, target: Target) -> tuple[Work, ...]:
        moved = 4.0 * p.batches * (p.m * p.k + p.n * p.k + p.m * p.n)
        return (direct_work(target, p.m, p.n, p.batches, p.k, rows, moved),)

    return Candidate(f"direct_{'eight' if rows == 8 else 'four'}", Way("direct", rows=rows), refuses, work)


_HELD = {
    "197x3072x768": "m4",
    "197x2304x768": "m1_split4",
    "128x384x1536": "m1_split8",
    "128x1536x384": "m1_split4",
    "128x1152x384": "m1_split4",
    "128x768x768": "m1_split8",
    "1500x384x384": "m1_split4",
    "1500x384x1536": "m1_split4",
    "1500x1152x384": "m1",
    "49x768x3072": "m1_split8",
    "784x768x192": "m1_split2",
    "256x256x1024": "m1_split8",
    "256x1024x256": "m1_split2",
    "1024x160x640": "m1_split4",
    "1024x640x160": "m1",
    "4096x64x256": "m1_split2",
    "16384x128x32": "m1",
    "1024x1024x1024": "m1_split2",
    "512x784x128": "s2",
    "256x3136x64": "s1",
    "96x12544x16": "s1",
}
"""Tiles that the published figures of the benchmark were measured with, where the costs of the H200 are for others that
nobody has measured for the product."""

_TILE_SWITCHES = {
    "matmul_large": "tiles of 128 x 128; without: of 64 x 64",
    "matmul_slices": "k of tiles of 64 x 64 split within a workgroup; without: over workgroups, or not",
    "matmul_split": "k dealt out over workgroups, a second kernel adds; without: a workgroup sums all of k",
}

TILES: Family[ProductProblem, Way] = Family(
    "tiles", tile_candidates(), MappingProxyType(_TILE_SWITCHES), MappingProxyType(_HELD)
)
"""Products that only tiles can make: with zero points, say."""

PRODUCTS: Family[ProductProblem, Way] = Family(
    "product",
    (
        Candidate(
            "few_rows",
            Way("few_rows"),
            _few_rows_refuses,
            lambda p, target: _few_work(p.m, p.n, p, p.trans_b),
            ("matmul_few_rows",),
        ),
        Candidate(
            "few_columns",
            Way("few_columns"),
            _few_columns_refuses,
            lambda p, target: _few_work(1, p.m, p, True),
            ("matmul_few_rows",),
        ),
        *tile_candidates("matmul_tiled"),
        _direct_candidate(8),
        _direct_candidate(4),
    ),
    MappingProxyType(
        {
            "matmul_tiled": "products through workgroup memory; without: from where the operands are",
            "matmul_few_rows": "products of at most eight rows read the weights once; without: as any product",
            **_TILE_SWITCHES,
        }
    ),
    MappingProxyType(_HELD),
)
"""Products of floats and of integers."""

"""The kernels of attention as candidates.

few     For few queries, as in decoding, or heads too wide for flash and tiled. few_x4 splits the keys until each
        compute unit has four workgroups; a second dispatch reduces the partial results.
flash   Several invocations share a query row; a workgroup has 4 or 16 rows.
tiled   Register-tiled products of 64 or 32 queries, with the keys split across up to 8 workgroups. tiled_32x64 steps
        by 64 keys instead of 32, with up to 2 workgroups. tiled_32_half keeps float16 in workgroup memory, so that
        heads of 128 components fit in 32 KiB, and those of 64 with float16 queries in 16 KiB.
rows    One invocation computes a query row: the fastest on software adapters up to some hundred keys.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from pyruntime.kernels.attention.description import AttentionForm, AttentionProblem
from pyruntime.kernels.attention.few_queries import FewQueries, few_queries, merge_lanes
from pyruntime.kernels.ir.costs import Work
from pyruntime.kernels.selection.candidates import Candidate, Family
from pyruntime.kernels.selection.measurements import (
    ATTENTION_FEW,
    ATTENTION_FLASH,
    ATTENTION_MERGE,
    ATTENTION_ROWS_LOADS,
    ATTENTION_TILED,
    FLASH_STAGING,
    HALF_TILED,
    SOFTWARE_ROWS,
    SOFTWARE_TILED,
)
from pyruntime.target import WORKGROUP, Target

__all__ = [
    "ATTENTIONS",
    "FLASH_THREADS",
    "LARGE",
    "SMALL",
    "WIDE",
    "WIDEST_HEAD",
    "AttentionWay",
    "Tile",
    "few_of",
    "is_few",
]

WIDEST_HEAD = 128
"""Components of a head that flash and tiled keep in registers."""

WIDEST_TALL = 64
"""Components of a head for which 64 rows stay in registers."""

FEW = 32
"""Rows that share keys, of at most half as many queries: more fill tiles."""

ALONE = 256
"""Keys a share has, at least, of few queries: two steps."""

FEW_HELD = 128
"""Invocations of tiles of products that a workgroup of few queries counts as: four of them are on a unit at once."""

MOST_ALONE = 512
"""Keys over which a workgroup that is alone on its unit walks, at most."""

LEAST_STEPS = 8
"""Steps a share has, at least, of tiles."""

LEAST_WIDE = 2
"""The same of tiles with 64 keys a step, whose workgroups are alone on their units."""

TILES_HELD = 4.55
"""Workgroups of tiles that a unit holds at once, on average."""

SOFTWARE_TILED_FROM = 192
"""Keys from which on tiles are worth it on a processor, where they take 2.8 seconds to compile, and rows 0.1."""

FLASH_THREADS = 64
"""Invocations of a workgroup of flash."""

FLASH_KEYS = 64
"""Keys of a step of flash."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A configuration of `shaders/attention/attention_tiled.wgsl`.

    Attributes:
        rows, keys: queries and keys of a workgroup's step. tall: rows of an invocation.
        splits: shares of the keys over workgroups.
        half: keys and values are float16 in workgroup memory, and queries that are float16, too.
    """

    rows: int
    keys: int
    tall: int
    splits: int = 1
    half: bool = False

    @property
    def name(self) -> str:
        """What the candidate is called: 'tiled_64_half_split4', 'tiled_32x64' where a step has other keys than 32."""
        half, keys = "_half" if self.half else "", f"x{self.keys}" if self.keys != SMALL.keys else ""
        return f"tiled_{self.rows}{keys}{half}{f'_split{self.splits}' if self.splits > 1 else ''}"

    @property
    def threads(self) -> int:
        """Invocations of a workgroup."""
        return self.keys // 4 * self.rows // self.tall

    def workgroup_bytes(self, size: int, v_size: int, half_q: bool = False) -> int:
        """Workgroup memory for heads of `size` and `v_size` components, of float16 queries where `half_q`."""
        quads, quads_v = -(-size // 4), -(-v_size // 4)
        queries, keys = quads * self.rows, max(quads * self.keys, self.keys * quads_v)
        others = self.keys * (self.rows // 4 + 1) + self.threads + self.rows // 4
        return (8 if self.half and half_q else 16) * queries + (8 if self.half else 16) * keys + 16 * others

    def groups(self, form: AttentionForm | AttentionProblem) -> int:
        """Workgroups of one split."""
        return -(-form.sizes[2] // self.rows) * form.heads

    def steps(self, form: AttentionForm | AttentionProblem) -> int:
        """Tiles of keys a workgroup walks over."""
        return -(-form.sizes[3] // (self.keys * self.splits))

    def over(self, problem: AttentionProblem) -> Tile:
        """With as many splits as have keys each."""
        steps = -(-problem.keys // self.keys)
        return replace(self, splits=-(-steps // -(-steps // self.splits))) if steps else replace(self, splits=1)


LARGE = Tile(64, 32, 8)
SMALL = Tile(32, 32, 4)
WIDE = Tile(32, 64, 4)
"""Twice the invocations of `SMALL` and half its steps: a workgroup alone on its unit waits less for its loads."""


@dataclass(frozen=True, slots=True)
class AttentionWay:
    """What a candidate runs.

    'few' with `fill` workgroups a unit, 0: keys are not split; 'flash' with `rows` a workgroup; 'tiled' with
    `tile`; 'rows'.
    """

    kernel: Literal["few", "flash", "tiled", "rows"]
    rows: int = 0
    fill: int = 0
    tile: Tile | None = None


def is_few(p: AttentionProblem) -> bool:
    """True where tiles of 32 queries would be mostly padding."""
    return p.queries <= FEW // 2 and p.group * p.queries <= FEW


def _is_wide(p: AttentionProblem) -> bool:
    return max(p.size, p.v_size) > WIDEST_HEAD


def _left_to_few(p: AttentionProblem, target: Target) -> str:
    """Why another kernel is none for this problem; '' where it may be one."""
    few = is_few(p) and target.allows("attention_few") and few_of(p, target, AttentionWay("few")) is not None
    return "few reads keys once for all rows that share them" if few else ""


def few_of(p: AttentionProblem, target: Target, way: AttentionWay) -> FewQueries | None:
    """The configuration of `few`; None where not even one row fits workgroup memory."""
    made = few_queries(p.group * p.queries, p.size, p.v_size, target.limits)
    if made is None:
        return None
    made = replace(made, splits=_shares(made, p, target, way.fill))
    # Many workgroups hide each other's waits, and more of them are on a unit at once if they are smaller.
    are_many = made.share > 2 and made.groups(p) * made.splits > target.speed.units
    return replace(made, share=2) if are_many else made


def _shares(made: FewQueries, p: AttentionProblem, target: Target, fill: int) -> int:
    """Shares of the keys with which each unit has about `fill` workgroups: a power of two of them in all."""
    if not fill:
        return 1
    wanted = 1 << ((fill * target.speed.units).bit_length() - 1)
    return max(1, min(-(-p.seen // ALONE), -(-wanted // max(1, made.groups(p)))))


def _merge_work(p: AttentionProblem, splits: int) -> Work:
    """Return the work of the dispatch that reduces the partial results of splits."""
    size, lanes = p.rows * p.v_size, merge_lanes(splits)
    jobs, flops = p.rows * -(-p.v_size // 4) * lanes, 8.0 * WORKGROUP * -(-splits // lanes)
    return Work(-(-jobs // WORKGROUP), WORKGROUP, flops, 4.0 * size * (splits + 1), ATTENTION_MERGE, stops=1)


def _moved(p: AttentionProblem) -> float:
    """Bytes of q, k, v and y, each once."""
    shared = p.heads // p.group
    return 4.0 * (p.rows * (p.size + p.v_size) + shared * p.seen * (p.size + p.v_size))


def _few_candidate(fill: int) -> Candidate[AttentionProblem, AttentionWay]:
    way = AttentionWay("few", fill=fill)

    def refuses(p: AttentionProblem, target: Target) -> str:
        if not is_few(p) and not _is_wide(p):
            return (
                f"for at most {FEW // 2} queries and {FEW} rows that share keys, or more than {WIDEST_HEAD} components"
            )
        if target.is_software:
            return "on a processor it takes seconds to compile, and is hardly faster than rows"
        made = few_of(p, target, way)
        if made is None:
            return "not even one row fits workgroup memory"
        less = few_of(p, target, replace(way, fill=fill // 2))
        if fill and (made.splits == 1 or made == less):
            return "it would be no more shares"
        return ""

    def work(p: AttentionProblem, target: Target) -> tuple[Work, ...]:
        made = few_of(p, target, way)
        assert made is not None
        tiles = -(-p.seen // made.keys)
        steps = -(-tiles // made.splits)
        wide = p.size + p.v_size
        turns = ATTENTION_FEW.step + ATTENTION_FEW.load * made.keys * wide / made.threads
        first = Work(
            groups=made.groups(p) * made.splits,
            threads=FEW_HELD,
            flops=2.0 * made.rows * made.keys * wide * steps,
            nbytes=_moved(p) * (made.blocks(p) or 1) + 4.0 * p.rows * p.v_size * (made.splits - 1),
            efficiency=ATTENTION_FEW.efficiency,
            steps=ATTENTION_FEW.begin + turns * steps,
            stops=made.threads / FEW_HELD * (5 * steps + 3),
        )
        return (first, _merge_work(p, made.splits)) if made.splits > 1 else (first,)

    switches = ("attention_few", *(("attention_split",) if fill else ()))
    return Candidate(f"few_x{fill}" if fill else "few", way, refuses, work, switches)


def _flash_candidate(rows: int) -> Candidate[AttentionProblem, AttentionWay]:
    def refuses(p: AttentionProblem, target: Target) -> str:
        if _is_wide(p):
            return f"heads of more than {WIDEST_HEAD} components take more registers than there are"
        return _left_to_few(p, target)

    def work(p: AttentionProblem, target: Target) -> tuple[Work, ...]:
        steps = -(-p.seen // FLASH_KEYS)
        mine = FLASH_KEYS * rows / FLASH_THREADS
        wide = p.size + p.v_size
        return (
            Work(
                groups=-(-p.queries // rows) * p.heads,
                threads=FLASH_THREADS,
                flops=2.0 * rows * FLASH_KEYS * (wide + ATTENTION_FLASH.softmax) * steps,
                nbytes=_moved(p),
                efficiency=ATTENTION_FLASH.efficiency * mine / (mine + FLASH_STAGING),
                steps=ATTENTION_FLASH.begin + steps * (ATTENTION_FLASH.step + ATTENTION_FLASH.load * mine * wide),
                stops=4.0 * steps + 8,
            ),
        )

    return Candidate(f"flash_{rows}", AttentionWay("flash", rows), refuses, work, text=1.5)


def _tile_refuses(tile: Tile) -> Callable[[AttentionProblem, Target], str]:
    def refuses(p: AttentionProblem, target: Target) -> str:
        if target.is_software and p.seen < SOFTWARE_TILED_FROM:
            return f"on a processor for {SOFTWARE_TILED_FROM} keys or more: it takes seconds to compile"
        if tile.keys > SMALL.keys and (target.is_software or tile.groups(p) * tile.splits > target.speed.units):
            return "for GPUs of which each unit has one workgroup at most"
        if tile.keys > SMALL.keys and p.seen > MOST_ALONE:
            return f"for at most {MOST_ALONE} keys, more are split"
        if tile.half and not target.has_f16:
            return "the device has no shader-f16"
        if tile.half and not p.half:
            return "keys and values are not float16"
        if left := _left_to_few(p, target):
            return left
        if max(p.size, p.v_size) > (WIDEST_TALL if tile.rows > SMALL.rows else WIDEST_HEAD):
            return "heads of so many components take more registers than there are"
        staged = tile.workgroup_bytes(p.size, p.v_size, p.half_q)
        if staged > target.limits.workgroup_bytes:
            return f"it takes {staged:,} bytes of workgroup memory"
        least = LEAST_WIDE if tile.keys > SMALL.keys else LEAST_STEPS
        if tile.splits > 1 and -(-p.keys // tile.keys) < least * tile.splits:
            return "shares of keys would be too short"
        if tile.splits > 1 and tile.groups(p) * tile.splits > TILES_HELD * target.speed.units:
            return "there are more workgroups without than run at once"
        return ""

    return refuses


def _tile_candidate(tile: Tile) -> Candidate[AttentionProblem, AttentionWay]:
    def work(p: AttentionProblem, target: Target) -> tuple[Work, ...]:
        made, wide = tile.over(p), p.size + p.v_size
        parts = SOFTWARE_TILED if target.is_software else ATTENTION_TILED[tile.rows, tile.keys]
        steps = -(-p.seen // (made.keys * made.splits))
        first = Work(
            groups=made.groups(p) * made.splits,
            threads=made.threads,
            flops=2.0 * made.rows * made.keys * (wide + parts.softmax) * steps,
            nbytes=_moved(p) + 4.0 * p.rows * p.v_size * (made.splits - 1),
            efficiency=parts.efficiency * (HALF_TILED if tile.half else 1.0),
            steps=parts.begin + (parts.step + parts.load * wide) * steps,
            stops=parts.begin + parts.step * steps if target.is_software else 5.0 * steps + 2,
        )
        return (first, _merge_work(p, made.splits)) if made.splits > 1 else (first,)

    def kernel(p: AttentionProblem) -> str:
        return f"{replace(tile, splits=1).name} {tile.splits > 1} {p.size} {p.v_size} {p.half_q}"

    half, split = ("attention_half",) if tile.half else (), ("attention_split",) if tile.splits > 1 else ()
    switches = ("attention_tiled", *half, *split)
    return Candidate(tile.name, AttentionWay("tiled", tile=tile), _tile_refuses(tile), work, switches, kernel=kernel)


def _rows_work(p: AttentionProblem, target: Target) -> tuple[Work, ...]:
    busy = min(p.rows, WORKGROUP if p.rows >= 1024 else 8)
    wide = p.size + p.v_size
    efficiency, softmax = (SOFTWARE_ROWS.efficiency, SOFTWARE_ROWS.softmax) if target.is_software else (1.0, 0.0)
    flops, loads = 2.0 * busy * p.seen * (wide + softmax), ATTENTION_ROWS_LOADS * p.seen * wide
    reached = efficiency * target.speed.direct
    return (Work(-(-p.rows // max(1, busy)), WORKGROUP, flops, _moved(p), reached, loads=loads, stops=0),)


ATTENTIONS: Family[AttentionProblem, AttentionWay] = Family(
    "attention",
    (
        *map(_few_candidate, (0, 1, 2, 4, 8)),
        *(_tile_candidate(replace(LARGE, splits=z)) for z in (1, 4, 8)),
        *(_tile_candidate(replace(SMALL, splits=z)) for z in (1, 2, 4, 8)),
        *(_tile_candidate(replace(SMALL, splits=z, half=True)) for z in (1, 2, 4)),
        *map(_tile_candidate, (WIDE, replace(WIDE, splits=2), replace(WIDE, half=True))),
        *map(_flash_candidate, (16, 4)),
        Candidate("rows", AttentionWay("rows"), lambda p, target: "", _rows_work),
    ),
    MappingProxyType(
        {
            "attention_few": "few queries that share keys in one workgroup; without: as any attention",
            "attention_tiled": "attention in tiles of 64 or 32 queries; without: a few invocations a query",
            "attention_half": "keys of float16 stay it in tiles, where there is shader-f16; without: they are float32",
            "attention_split": "keys of attention split across workgroups; without: a workgroup walks over all",
        }
    ),
)
"""Attention as one kernel, or as one over shares of the keys and one that reduces their partial results."""

"""The kernels of convolutions as candidates.

depthwise  one input channel a group: neighbours in a row share what they read
direct     four pixels of one, four or eight output channels an invocation, no workgroup memory: groups of few output
           channels, and adapters that run on a processor; a transposed one makes one output an invocation on GPUs
gemm       implicit GEMM in tiles of 64 x 64, or of 32 x 32, k split over up to 4 slices of a workgroup and over
           workgroups
matmul     a pointwise convolution as a matrix product, in tiles of 64 x 64 and 64 x 128, or by subgroup matrices
bytes      int8 convolutions by packed dot products
int8       the same on adapters that run on a processor, as floats, a word of weights at a time: pointwise ones as
           products, others with weights whose channels are last, of which those of one input channel a group share
           what neighbours read
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Literal

from pyruntime.kernels.ir.costs import Work
from pyruntime.kernels.products.candidates import (
    EIGHT_JOBS,
    MATRICES,
    TEXTS,
    ProductProblem,
    half_refuses,
    large_refuses,
    sum_work,
    tile_kernel,
    tile_work,
)
from pyruntime.kernels.products.tiling import LARGE, MEDIUM, SMALL, TILE_K, AnyTiling, MatrixTiling, Tiling
from pyruntime.kernels.selection.candidates import Candidate, Family
from pyruntime.kernels.selection.measurements import (
    CONV_BYTES_EFFICIENCY,
    CONV_DEPTHWISE_EFFICIENCY,
    CONV_DEPTHWISE_LOADS,
    CONV_DIRECT_EFFICIENCY,
    CONV_DIRECT_LOADS,
    CONV_GEMM,
    CONV_HALF,
    CONV_HALF_SLICED,
    CONV_HALF_STEP,
    CONV_INT8_EFFICIENCY,
    CONV_POINTWISE,
    SOFTWARE_GEMM,
    SOFTWARE_POINTWISE,
)
from pyruntime.kernels.windows import Window
from pyruntime.target import WORKGROUP, Target

__all__ = ["CONVOLUTIONS", "ConvProblem", "ConvWay"]

LEAST_STEPS = 2
"""Steps that a share of k has at least."""


@dataclass(frozen=True)
class ConvProblem:
    """A convolution for the choice of its kernel: the most its sizes can be.

    Attributes:
        images, group: images, and groups of channels.
        channels, rows: input and output channels of a group.
        window: over three axes; `input` is what the kernels read, `output` what they write.
        transposed: y = the transpose of a convolution.
        pointwise: every output looks at the one input of its own position. shared: the depthwise kernel knows it.
        narrow: the int8 depthwise kernel does.
        kind: 'float', 'integer', or 'bytes' that the kernel of packed dot products knows.
        half: x and w are float16, and the device has shader-f16.
        fixed: weights are known before the run, so that they can be kept with their channels last.
    """

    images: int
    group: int
    channels: int
    rows: int
    window: Window
    transposed: bool = False
    pointwise: bool = False
    shared: bool = False
    narrow: bool = False
    kind: str = "float"
    fixed: bool = False
    half: bool = False

    @cached_property
    def phases(self) -> int:
        """Products that it is: of a transposed one, outputs that meet the same filter positions."""
        return math.prod(self.window.strides) if self.transposed else 1

    @cached_property
    def positions(self) -> int:
        """Filter positions that an output meets, at most."""
        if not self.transposed:
            return self.window.positions
        w = self.window
        return math.prod(
            -(-k // (s // math.gcd(d, s))) for k, s, d in zip(w.kernel, w.strides, w.dilations, strict=True)
        )

    @cached_property
    def depth(self) -> int:
        """Depth of the matrix product that the convolution is: channels times filter positions."""
        return self.channels * self.positions

    @cached_property
    def columns(self) -> int:
        """Output positions of one channel in all images; for a transposed convolution, those of one phase."""
        w = self.window
        strides = w.strides if self.transposed else (1, 1, 1)
        return self.images * math.prod(-(-o // s) for o, s in zip(w.output, strides, strict=True))

    @cached_property
    def size(self) -> int:
        """Elements of y."""
        return self.images * self.group * self.rows * self.window.pixels

    @cached_property
    def nbytes(self) -> float:
        """Bytes of x, w and y, each once."""
        x = self.images * self.group * self.channels * math.prod(self.window.input)
        w = self.group * self.rows * self.channels * self.window.positions
        width = 1.0 if self.kind == "bytes" else 2.0 if self.half else 4.0
        return width * (x + w) + (2.0 if self.half else 4.0) * self.size

    @property
    def key(self) -> str:
        """'1x64x1x56x56 m128 k1x3x3 p0x1x1 y1x56x56': x, output channels, what is not 1 or 0, extents of y."""
        w = self.window

        def axes(numbers: tuple[int, ...]) -> str:
            return "x".join(map(str, numbers))

        parts = [f"{self.images}x{self.group * self.channels}x{axes(w.input)}", f"m{self.rows * self.group}"]
        parts += [f"k{axes(w.kernel)}"] if w.positions > 1 else []
        ones = (1,) * w.rank
        parts += [f"{n}{axes(v)}" for n, v in (("s", w.strides), ("d", w.dilations)) if v != ones]
        parts += [f"p{axes(w.begin)}"] if any(w.begin) else []
        parts += [f"y{axes(w.output)}"]
        parts += [f"g{self.group}"] if self.group > 1 else []
        parts += ["transposed"] if self.transposed else []
        parts += [self.kind] if self.kind != "float" else []
        parts += ["fixed"] if self.fixed else []
        parts += ["half"] if self.half else []
        return " ".join(parts)

    @cached_property
    def product(self) -> ProductProblem:
        """The matrix product that a pointwise convolution is."""
        return ProductProblem(self.rows, self.window.pixels, self.channels, self.images * self.group, half=self.half)


@dataclass(frozen=True, slots=True)
class ConvWay:
    """What a candidate runs.

    'depthwise', 'bytes', 'direct' or 'int8_direct' with `rows` output channels an invocation (int8_direct of 1:
    depthwise), 'gemm' or 'matmul' with `tiling`.
    """

    kernel: Literal["depthwise", "direct", "gemm", "matmul", "bytes", "int8_direct"]
    rows: int = 0
    tiling: AnyTiling | None = None


def _refuses_depthwise(p: ConvProblem, target: Target) -> str:
    return "" if p.shared else "for one input channel a group and narrow filters, without zero points"


def _depthwise_work(p: ConvProblem, target: Target) -> tuple[Work, ...]:
    _, height, width = p.window.output
    jobs = p.images * p.rows * p.group * height * -(-width // 4)
    return (_direct(target, jobs, 4, p.window.positions, p.nbytes, CONV_DEPTHWISE_EFFICIENCY, CONV_DEPTHWISE_LOADS),)


def _direct(target: Target, jobs: int, results: int, depth: int, nbytes: float, reached: float, loads: float) -> Work:
    """Invocations that make `results` results each, from where the operands are."""
    busy = min(jobs, WORKGROUP)
    flops = 2.0 * busy * results * depth
    efficiency = reached * target.speed.direct
    return Work(-(-jobs // WORKGROUP), WORKGROUP, flops, nbytes, efficiency, loads=loads * depth, stops=0)


def _direct_candidate(rows: int) -> Candidate[ConvProblem, ConvWay]:
    def refuses(p: ConvProblem, target: Target) -> str:
        if rows == 1:
            return ""
        if alone(p, target):
            return "transposed ones make one output an invocation on GPUs"
        if p.rows <= (4 if rows == 8 else 1):
            return "for more output channels"
        return "it keeps too few invocations busy" if rows == 8 and jobs(p) < EIGHT_JOBS else ""

    def alone(p: ConvProblem, target: Target) -> bool:
        return p.transposed and not target.is_software

    def jobs(p: ConvProblem) -> int:
        quads = p.phases * -(-p.columns // 4) if p.transposed else p.images * -(-p.window.pixels // 4)
        return quads * p.group * -(-p.rows // rows)

    def work(p: ConvProblem, target: Target) -> tuple[Work, ...]:
        count, results = (p.size, 1) if alone(p, target) else (jobs(p), 4 * rows)
        efficiency, loads = CONV_DIRECT_EFFICIENCY[rows], CONV_DIRECT_LOADS[rows]
        return (_direct(target, count, results, p.depth, p.nbytes, efficiency, loads),)

    name = {1: "one", 4: "four", 8: "eight"}[rows]
    return Candidate(f"direct_{name}", ConvWay("direct", rows), refuses, work, ("conv_direct",))


def _refuses_int8(p: ConvProblem, target: Target) -> str:
    if p.kind != "bytes" or not target.is_software:
        return "for bytes into int32 on a processor"
    return "" if p.pointwise or p.fixed else "weights must be known before the run"


def _int8_work(p: ConvProblem, target: Target, jobs: int, flops: float, efficiency: float) -> tuple[Work, ...]:
    threads = target.few(jobs)
    flops *= min(jobs, threads)
    return (Work(-(-jobs // threads), threads, flops, p.nbytes, efficiency * target.speed.direct, stops=0),)


def _int8_candidate(rows: int) -> Candidate[ConvProblem, ConvWay]:
    def refuses(p: ConvProblem, target: Target) -> str:
        return _refuses_int8(p, target) or ("for more output channels" if p.rows <= rows // 2 else "")

    def work(p: ConvProblem, target: Target) -> tuple[Work, ...]:
        jobs = p.images * p.group * -(-p.window.pixels // 4) * -(-p.rows // rows)
        channels = p.channels if p.channels < 4 else -(-p.channels // 4) * 4
        return _int8_work(p, target, jobs, 8.0 * rows * channels * p.window.positions, CONV_INT8_EFFICIENCY[rows])

    return Candidate(
        f"int8_{'eight' if rows == 8 else 'four'}", ConvWay("int8_direct", rows), refuses, work, ("conv_int8_direct",)
    )


def _refuses_int8_one(p: ConvProblem, target: Target) -> str:
    return _refuses_int8(p, target) or ("" if p.narrow and p.fixed else "for one input channel a group, small filters")


def _int8_one_work(p: ConvProblem, target: Target) -> tuple[Work, ...]:
    _, height, width = p.window.output
    jobs = p.images * p.rows * p.group * height * -(-width // 4)
    return _int8_work(p, target, jobs, 8.0 * p.window.positions, CONV_INT8_EFFICIENCY[1])


def _gemm_work(t: Tiling, p: ConvProblem, target: Target) -> tuple[Work, ...]:
    steps = t.steps(p.depth)
    tiles = -(-p.rows // t.high) * -(-p.columns // t.wide) * p.group * p.phases
    if target.is_software:
        parts = SOFTWARE_POINTWISE if p.pointwise else SOFTWARE_GEMM
    else:
        parts = CONV_POINTWISE if p.pointwise else CONV_GEMM
    sliced = parts.sliced * (CONV_HALF_SLICED if t.half else 1.0)
    first = Work(
        groups=tiles * t.splits,
        threads=t.threads,
        flops=2.0 * t.high * t.wide * t.depth * t.slices * steps,
        nbytes=p.nbytes + 4.0 * p.size * (t.splits - 1),
        efficiency=(CONV_HALF if t.half else 1.0) * parts.efficiency[t.high] * sliced ** math.log2(t.slices),
        steps=(CONV_HALF_STEP if t.half else 1.0) * parts.step * steps,
        merges=parts.merge * math.log2(t.slices),
        stops=2 * steps + math.log2(t.slices),
    )
    if t.splits == 1:
        return (first,)
    adding = sum_work(p.size, t.splits)
    return first, adding._replace(nbytes=parts.sum_bytes * adding.nbytes)


def _gemm_candidate(t: Tiling) -> Candidate[ConvProblem, ConvWay]:
    def refuses(p: ConvProblem, target: Target) -> str:
        if reason := half_refuses(t, p.half, p.depth, target):
            return reason
        if t.slices * t.splits > 1 and t.steps(p.depth) < LEAST_STEPS:
            return "shares of k would be too short"
        staged = 16 * t.slices * TILE_K * (t.high + t.wide) // 4
        staged += 16 * (t.slices - 1) * t.high * t.wide // 4 if t.half else 0
        if staged > target.limits.workgroup_bytes:
            return f"it takes {staged:,} bytes of workgroup memory"
        if t.threads > min(target.limits.invocations, target.limits.workgroup_x):
            return f"it takes {t.threads} invocations a workgroup"
        return ""

    switches = ("conv_gemm", *(("conv_half",) if t.half else ()), *(("conv_large",) if t.tile == MEDIUM.tile else ()))
    switches += ("conv_split",) if t.splits > 1 else ()

    def kernel(p: ConvProblem) -> str:
        return f"{t.unsplit} {t.splits > 1} {p.kind} {p.window.kernel} {p.pointwise} {p.transposed}"

    way = ConvWay("gemm", tiling=t)
    return Candidate(
        f"gemm_{t.name}", way, refuses, lambda p, target: _gemm_work(t, p, target), switches, kernel=kernel
    )


def _matmul_candidate(t: AnyTiling) -> Candidate[ConvProblem, ConvWay]:
    def refuses(p: ConvProblem, target: Target) -> str:
        if not p.pointwise or p.kind != "float" or p.transposed:
            return "for pointwise convolutions of floats"
        if reason := half_refuses(t, p.half, p.depth, target):
            return reason
        if t.slices > 1 and t.steps(p.depth) < LEAST_STEPS:
            return "shares of k would be too short"
        return large_refuses(t, p.depth) or t.on(target).fits(target.limits)

    def work(p: ConvProblem, target: Target) -> tuple[Work, ...]:
        return tile_work(t, p.product)

    if isinstance(t, MatrixTiling):
        tiled: tuple[str, ...] = ("matmul_matrix",)
    else:
        tiled = ("conv_half",) if t.half else ()
        tiled += ("matmul_large",) if t.tile == LARGE.tile else ("matmul_slices",) if t.slices > 1 else ()
    return Candidate(
        f"matmul_{t.name}",
        ConvWay("matmul", tiling=t),
        refuses,
        work,
        ("conv_matmul", *tiled),
        TEXTS[t.tile],
        lambda p: tile_kernel(t, p.depth, p.window.pixels),
    )


def _bytes_work(p: ConvProblem, target: Target) -> tuple[Work, ...]:
    tiles = -(-p.rows // SMALL.high) * -(-p.window.pixels // SMALL.wide) * p.group * p.images
    steps = -(-p.depth // (4 * TILE_K))
    flops = 2.0 * SMALL.high * SMALL.wide * 4 * TILE_K * steps
    return (Work(tiles, SMALL.threads, flops, p.nbytes, CONV_BYTES_EFFICIENCY, steps=steps),)


_GEMMS = (
    *(replace(SMALL, slices=s) for s in (1, 2, 4)),
    *(replace(SMALL, slices=s, splits=2) for s in (2, 4)),
    *(replace(SMALL, slices=s, splits=z) for z in (4, 8) for s in (1, 2, 4)),
    MEDIUM,
)
_GEMMS += tuple(replace(t, half=True) for t in _GEMMS)
_MATMULS: tuple[AnyTiling, ...] = (
    *(MEDIUM, replace(MEDIUM, slices=2), LARGE),
    *(replace(MEDIUM, half=True), replace(LARGE, half=True)),
    *(t for t in MATRICES if t.splits == 1),
)

CONVOLUTIONS: Family[ConvProblem, ConvWay] = Family(
    "convolution",
    (
        Candidate("depthwise", ConvWay("depthwise"), _refuses_depthwise, _depthwise_work, ("conv_depthwise",)),
        Candidate(
            "bytes",
            ConvWay("bytes"),
            lambda p, target: "" if p.kind == "bytes" else "for bytes into int32",
            _bytes_work,
            ("conv_int8",),
        ),
        *map(_matmul_candidate, _MATMULS),
        *map(_gemm_candidate, _GEMMS),
        *map(_direct_candidate, (8, 4, 1)),
        *map(_int8_candidate, (8, 4)),
        Candidate("int8_one", ConvWay("int8_direct", 1), _refuses_int8_one, _int8_one_work, ("conv_int8_direct",)),
    ),
    MappingProxyType(
        {
            "conv_depthwise": "depthwise convolution sharing what neighbours read; without: as any grouped one",
            "conv_direct": "groups of few output channels, each result on its own; without: implicit GEMM",
            "conv_gemm": "implicit GEMM through workgroup memory; without: each result on its own",
            "conv_matmul": "large pointwise convolution as a matrix product; without: implicit GEMM",
            "conv_half": "float16 multiplied in float16, where the device has shader-f16; without: in float32",
            "conv_large": "implicit GEMM in tiles of 64 x 64; without: of 32 x 32",
            "conv_split": "k of implicit GEMM split across workgroups; without: a workgroup sums all of k",
            "conv_int8_direct": "int8 convolution on a processor by words of weights; without: number by number",
            "conv_int8": "int8 convolution by packed dot products; without: as any, number by number",
        }
    ),
)
"""Convolutions, transposed ones too."""

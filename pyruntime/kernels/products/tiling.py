"""Configurations of the tiled matrix product."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self, TypeAlias

from pyruntime.kernels.products.description import Product
from pyruntime.target import Limits, Target

__all__ = ["LARGE", "MEDIUM", "SMALL", "TILE_K", "AnyTiling", "MatrixTiling", "Tiling"]

TILE_K = 16
HALF_TILE_K = 32


@dataclass(frozen=True)
class TileGrid:
    """How the results of a product are split across workgroups.

    Attributes:
        high, wide: rows and columns of a workgroup's results.
        slices: shares of k within a workgroup. splits: shares of k over workgroups.
    """

    high: int
    wide: int
    slices: int = field(default=1, kw_only=True)
    splits: int = field(default=1, kw_only=True)

    @cached_property
    def name(self) -> str:
        """Name of the candidate: 's4_split2'."""
        return f"{self.kernel}{self.splits if self.splits > 1 else ''}"

    @property
    def kernel(self) -> str:
        """What kernels are called: 's4_split'. One serves any number of splits, which is a parameter of it."""
        return f"{self.unsplit}{'_split' if self.splits > 1 else ''}"

    @property
    @abstractmethod
    def unsplit(self) -> str:
        """Name of the candidate without split-K: 's4'."""

    @property
    @abstractmethod
    def threads(self) -> int:
        """Invocations of a workgroup."""

    @property
    @abstractmethod
    def depth(self) -> int:
        """Of k, what a step of a slice covers."""

    @property
    @abstractmethod
    def workgroup_bytes(self) -> int:
        """Workgroup memory, at least."""

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of a workgroup's results."""
        return self.high, self.wide

    def steps(self, k: int) -> int:
        """Steps that every slice of every split takes."""
        return -(-k // (self.depth * self.slices * self.splits))

    def groups(self, product: Product) -> int:
        """Workgroups."""
        return self.tiles(product) * self.splits

    def tiles(self, product: Product) -> int:
        """Tiles over all batches."""
        return -(-product.m // self.high) * -(-product.n // self.wide) * product.batches

    def on(self, target: Target) -> Self:
        """The same by a device's matrices, where it is of such and the device has any."""
        return self

    def fits(self, limits: Limits) -> str:
        """Why a device cannot run it; "" where it can."""
        if self.workgroup_bytes > limits.workgroup_bytes:
            return f"it takes {self.workgroup_bytes:,} bytes of workgroup memory"
        if self.threads > min(limits.invocations, limits.workgroup_x):
            return f"it takes {self.threads} invocations a workgroup"
        return ""


@dataclass(frozen=True)
class Tiling(TileGrid):
    """A configuration of `shaders/products/matmul_tiled.wgsl` and `matmul_packed_tiled.wgsl`.

    Attributes:
        rows, quads: results of an invocation: `rows` rows of `quads` vec4s.
        half: operands are float16 in workgroup memory, and `RUN` products at a time are summed in float16.
    """

    rows: int
    quads: int
    half: bool = False

    @cached_property
    def unsplit(self) -> str:
        size = {SMALL.tile: "s", MEDIUM.tile: "m"}.get(self.tile, "l")
        return f"{'half_' if self.half else ''}{size}{self.slices}"

    @cached_property
    def threads(self) -> int:
        return self.high // self.rows * self.wide // (4 * self.quads) * self.slices

    @property
    def results(self) -> int:
        """Results of an invocation."""
        return 4 * self.rows * self.quads

    @property
    def depth(self) -> int:
        return HALF_TILE_K if self.half else TILE_K

    @cached_property
    def workgroup_bytes(self) -> int:
        if self.half:
            tiles = self.depth // 2 * (self.high // 2 + 1 + self.wide // 2 + 1)
            return 8 * self.slices * tiles + 16 * (self.slices - 1) * self.high * self.wide // 4
        if self.tile == SMALL.tile:
            staged_a = max(self.slices * self.high * (TILE_K // 4 + 1), (self.slices - 1) * 64 * self.rows)
            return 16 * (staged_a + self.slices * TILE_K * self.wide // 4)
        if self.slices > 1:
            staged = max(self.slices * TILE_K * 17, self.slices // 2 * 128 * 8) + self.slices * TILE_K * 16
            return 16 * staged
        return 16 * TILE_K * (self.high // 4 + 1 + self.wide // 4)


@dataclass(frozen=True)
class MatrixTiling(TileGrid):
    """A configuration of `shaders/products/matmul_matrix_tiled.wgsl`: of matrices that subgroups multiply.

    Attributes:
        subgroups: along the rows and along the columns of a tile.
        step: of k, what a step covers.
        unit: rows, columns and k of the matrices.
        lanes: invocations of a subgroup.
    """

    subgroups: tuple[int, int]
    step: int
    unit: tuple[int, int, int] = (16, 16, 16)
    lanes: int = 32

    @cached_property
    def unsplit(self) -> str:
        return f"matrix_{self.high}x{self.wide}"

    @cached_property
    def threads(self) -> int:
        return self.subgroups[0] * self.subgroups[1] * self.lanes

    @property
    def depth(self) -> int:
        return self.step

    @cached_property
    def workgroup_bytes(self) -> int:
        """Workgroup memory, at most: rows of tiles are longer by 8 elements, most where they are the shorter sides."""
        tall, broad = self.subgroups
        staged = sum(side * self.step + 8 * max(side, self.step) for side in (self.high, self.wide))
        return max(2 * staged, 4 * tall * broad * self.unit[0] * (self.wide // broad + 4))

    def on(self, target: Target) -> Self:
        return replace(self, unit=target.matrix_unit or self.unit, lanes=target.subgroup_size or self.lanes)

    @property
    def is_whole(self) -> bool:
        """True where every subgroup has a whole number of matrices."""
        (m, n, k), (tall, broad) = self.unit, self.subgroups
        return not (self.high % (m * tall) or self.wide % (n * broad) or self.step % k)

    @property
    def constants(self) -> dict[str, int]:
        """What the template is told of subgroups."""
        sizes = (*self.unit, self.lanes, *self.subgroups)
        return dict(zip(("UNIT_M", "UNIT_N", "UNIT_K", "LANES", "HIGH", "WIDE"), sizes, strict=True))


AnyTiling: TypeAlias = "Tiling | MatrixTiling"

SMALL = Tiling(32, 32, 4, 1)
MEDIUM = Tiling(64, 64, 8, 1)
LARGE = Tiling(64, 128, 8, 2)

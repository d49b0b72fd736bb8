"""Configurations of the tiled matrix product."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pyruntime.kernels.products.description import Product
from pyruntime.target import Limits

__all__ = ["LARGE", "MEDIUM", "SMALL", "TILE_K", "Tiling"]

TILE_K = 16
HALF_TILE_K = 32


@dataclass(frozen=True)
class Tiling:
    """A configuration of `shaders/products/matmul_tiled.wgsl` and `matmul_packed_tiled.wgsl`.

    Attributes:
        high, wide: rows and columns of a workgroup's results.
        rows, quads: results of an invocation: `rows` rows of `quads` vec4s.
        slices: shares of k within a workgroup. splits: shares of k over workgroups.
        half: operands are float16 in workgroup memory, and `RUN` products at a time are summed in float16.
    """

    high: int
    wide: int
    rows: int
    quads: int
    slices: int = 1
    splits: int = 1
    half: bool = False

    @cached_property
    def name(self) -> str:
        """Name of the candidate: 's4_split2'."""
        return f"{self.kernel}{self.splits if self.splits > 1 else ''}"

    @property
    def kernel(self) -> str:
        """What kernels are called: 's4_split'. One serves any number of splits, which is a parameter of it."""
        return f"{self.unsplit}{'_split' if self.splits > 1 else ''}"

    @cached_property
    def unsplit(self) -> str:
        """Name of the candidate without split-K: 's4'."""
        size = {SMALL.tile: "s", MEDIUM.tile: "m"}.get(self.tile, "l")
        return f"{'half_' if self.half else ''}{size}{self.slices}"

    @cached_property
    def threads(self) -> int:
        """Invocations of a workgroup."""
        return self.high // self.rows * self.wide // (4 * self.quads) * self.slices

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of a workgroup's results."""
        return self.high, self.wide

    @property
    def results(self) -> int:
        """Results of an invocation."""
        return 4 * self.rows * self.quads

    @property
    def depth(self) -> int:
        """Of k, what a step of a slice covers."""
        return HALF_TILE_K if self.half else TILE_K

    def steps(self, k: int) -> int:
        """Steps that every slice of every split takes."""
        return -(-k // (self.depth * self.slices * self.splits))

    def groups(self, product: Product) -> int:
        """Workgroups."""
        return self.tiles(product) * self.splits

    def tiles(self, product: Product) -> int:
        """Tiles over all batches."""
        return -(-product.m // self.high) * -(-product.n // self.wide) * product.batches

    @cached_property
    def workgroup_bytes(self) -> int:
        """Workgroup memory, at least."""
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

    def fits(self, limits: Limits) -> str:
        """Why a device cannot run it; "" where it can."""
        if self.workgroup_bytes > limits.workgroup_bytes:
            return f"it takes {self.workgroup_bytes:,} bytes of workgroup memory"
        if self.threads > min(limits.invocations, limits.workgroup_x):
            return f"it takes {self.threads} invocations a workgroup"
        return ""


SMALL = Tiling(32, 32, 4, 1)
MEDIUM = Tiling(64, 64, 8, 1)
LARGE = Tiling(64, 128, 8, 2)

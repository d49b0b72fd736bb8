"""Products of int8 and uint8 matrices on the GPU, exact in 32 bits: kernel, configuration, dispatches.

    direct     no workgroup memory: for adapters that run on a processor
    skinny     m <= 8: every byte of b is read once, k is split within a workgroup
    tiled      32 x 32, k split over up to 4 slices of a workgroup; 64 x 64 where its tiles are many

Four products at a time where the device has `packed_4x8_integer_dot_product`, one by one where not. Zero points are
taken off the sums, by the sums of rows and columns, which the product makes on its way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyruntime.ir import DType, multiple, upper
from pyruntime.kernels.ir.dispatch import Dispatch, Operand
from pyruntime.kernels.ir.fallback import fallback_flag
from pyruntime.kernels.ir.launch import launch
from pyruntime.kernels.products.candidates import EIGHT_JOBS, SKINNY_ROWS
from pyruntime.kernels.products.description import Product
from pyruntime.kernels.products.matmul import MAX_BATCH_RANK, batch_params
from pyruntime.kernels.products.packed_weights import in_words
from pyruntime.kernels.windows import Window
from pyruntime.target import Target

__all__ = ["BYTES", "EXACT", "PACKED_DOT", "IntegerMatmul", "ZeroPoint", "zero_point"]

BYTES = (DType.INT8, DType.UINT8)

PACKED_DOT = "packed_4x8_integer_dot_product"
"""The WGSL language feature that has dot4I8Packed."""

WORDS = 8
"""Words of k in a step of a slice of the tiled kernel."""

EXACT = 256
"""Products of two int8 numbers whose sum f32 holds exactly."""

BUSY = 128
"""Tiles of 64 x 64 that keep a GPU busy."""

WIDE = 8192
"""Columns from which on a workgroup of `skinny` takes more of them and splits k less."""


@dataclass(frozen=True, slots=True)
class ZeroPoint:
    """What is subtracted from an operand: a number, or the elements of a tensor.

    Attributes:
        operand: the tensor, or None. stride: 0, one for all; 1, one a row of a or a column of b.
        number: what is subtracted where there is no tensor.
    """

    operand: Operand | None = None
    stride: int = 0
    number: int = 0


def zero_point(operand: Operand | None, stride: int) -> ZeroPoint:
    """The zero point a tensor holds: a number where the plan knows it to be one for all."""
    if operand is None:
        return ZeroPoint()
    if operand.type.is_known:
        value = operand.type.value().reshape(-1)
        if value.size and bool((value == value[0]).all()):
            return ZeroPoint(number=int(value[0]))
    return ZeroPoint(operand, stride)


@dataclass(frozen=True, slots=True)
class IntegerMatmul:
    """y = (a - a_zero) @ (b - b_zero): what a kernel is made for.

    Attributes:
        product: sizes, batches, storage orders; `trans_a` is False.
        y: int32 [batches, m, n]; a, b: int8 or uint8.
        window: b is a stack of images, of which this shows [k, n]; for `tiled` alone.
    """

    product: Product
    y: Operand
    a: Operand
    b: Operand
    a_zero: ZeroPoint
    b_zero: ZeroPoint
    window: Window | None = None

    def lower(self, target: Target) -> tuple[Dispatch, ...]:
        """Return the dispatches of the product."""
        p = self.product
        if len(p.batch) > MAX_BATCH_RANK:
            raise ValueError(f"products step through at most {MAX_BATCH_RANK} batch dimensions, got {len(p.batch)}")
        if not self.y.type.size:
            return ()
        if target.is_software:
            return (self._direct(target),)
        if isinstance(p.m, int) and p.m <= SKINNY_ROWS and target.allows("integer_skinny"):
            return (self._skinny(target),)
        return (self.tiled(target),)

    def tiled(self, target: Target) -> Dispatch:
        """Return the dispatch of `shaders/products/matmul_integer_tiled.wgsl`."""
        p, most = self.product, self.product.most()
        large = -(-most.m // 64) * -(-most.n // 64) * most.batches >= BUSY and min(most.m, most.n) > 32
        tile, rows = (64, 8) if large and target.allows("integer_large") else (32, 4)
        words = -(-p.k // 4)
        slices = 1
        while tile == 32 and slices < target.widest(256) // 64 and upper(words) >= 4 * slices * WORDS:
            slices *= 2
        m_tiles, n_tiles = -(-p.m // tile), -(-p.n // tile)
        groups = m_tiles * n_tiles * p.batches
        defines = {"TILE_M": tile, "TILE_N": tile, "ROWS": rows, "SLICES": slices}
        seen: dict[str, list[int]] = {}
        if (window := self.window) is not None:
            defines |= {"CONVOLUTION": 1, **dict(zip(("KD", "KH", "KW"), window.kernel, strict=True))}
            names = ("input", "output", "strides", "dilations")
            seen = {n: list(getattr(window, n)) for n in names} | {"pads": list(window.begin)}
        return self._dispatch(
            target,
            "matmul_integer_tiled",
            f"matmul_integer_{'m' if tile == 64 else 's'}{slices}",
            {**defines, "SLICED": slices > 1, **fallback_flag(target)},
            target.fold(groups),
            **seen,
            m=p.m,
            words=words,
            steps=-(-words // (WORDS * slices)),
            m_tiles=m_tiles,
            n_tiles=n_tiles,
            groups=groups,
        )

    def _skinny(self, target: Target) -> Dispatch:
        """`shaders/products/matmul_integer_skinny.wgsl`: 256 invocations, or as many as the device takes."""
        p = self.product
        columns = 4 if p.trans_b else 16 if upper(p.n) >= WIDE else 8
        blocks = -(-p.n // (4 * columns))
        groups = blocks * p.batches
        return self._dispatch(
            target,
            "matmul_integer_skinny",
            "matmul_integer_skinny",
            {"M": p.m, "COLS": columns, "SHARES": target.widest(256) // columns},
            target.fold(groups),
            words=-(-p.k // 4),
            blocks=blocks,
            groups=groups,
        )

    def _direct(self, target: Target) -> Dispatch:
        """Return the dispatch of `shaders/products/matmul_integer_direct.wgsl`, for software adapters."""
        p = self.product
        columns = -(-p.n // 4)
        eight = upper(p.m) > 4 and upper(columns * -(-p.m // 8) * p.batches) >= EIGHT_JOBS
        rows = 8 if eight else 4 if upper(p.m) > 1 else 1
        lines = -(-p.m // rows)
        jobs = columns * lines * p.batches
        workgroup = target.few(upper(jobs))
        flags = {
            "STEPPED": multiple(p.k, 4) and multiple(p.n, 4) and not p.trans_b,
            "ONCE": upper(p.k) <= EXACT,
            "ALONE": upper(p.batches) == 1,
            "ROW_ZEROS": bool(self.a_zero.stride),
            "OWN_ZERO": bool(self.a_zero.stride),
        }
        return self._dispatch(
            target,
            "matmul_integer_direct",
            f"matmul_integer_direct_{rows}",
            {"ROWS": rows, "WG": workgroup, **flags},
            target.grid(jobs, workgroup),
            m=p.m,
            words=-(-p.k // 4),
            columns=columns,
            rows=lines,
            jobs=jobs,
        )

    def _dispatch(
        self,
        target: Target,
        shader: str,
        name: str,
        defines: Mapping[str, object],
        grid: tuple[int, int, int],
        **values: int | list[int],
    ) -> Dispatch:
        p = self.product
        words_a = multiple(p.k, 4)
        words_b = self.window is None and multiple(p.k if p.trans_b else p.n, 4)
        flags = {
            "PACKED_DOT": PACKED_DOT in target.features,
            "TRANS_B": p.trans_b,
            "WORDS_A": words_a,
            "QUADS_A": shader != "matmul_integer_direct" and multiple(p.k, 16),
            "WORDS_B": words_b,
            "VEC_Y": multiple(p.n, 4),
            "UNSIGNED_A": self.a.type.dtype is DType.UINT8,
            "UNSIGNED_B": self.b.type.dtype is DType.UINT8,
            "ZERO_A": self.a_zero.operand,
            "ZERO_B": self.b_zero.operand,
        }
        if shader != "matmul_integer_direct":
            flags["CENTRED_A"] = _is_centred(self.a, self.a_zero)
            flags["CENTRED_B"] = _is_centred(self.b, self.b_zero)
        tensors = {
            "a": in_words(self.a) if words_a else self.a,
            "b": in_words(self.b) if words_b else self.b,
            "a_zero": self.a_zero.operand,
            "b_zero": self.b_zero.operand,
            "y": self.y,
        }
        params = {
            "n": p.n,
            "k": p.k,
            "a_zero_stride": self.a_zero.stride,
            "b_zero_stride": self.b_zero.stride,
            "offset_a": self.a_zero.number,
            "offset_b": self.b_zero.number,
            **batch_params(p),
            **values,
        }
        made = launch(shader, tensors, grid, {**defines, **flags}, params, p.flops)
        return made.called(f"{name}_n{'t' if p.trans_b else 'n'}")


def _is_centred(x: Operand, zero: ZeroPoint) -> bool:
    """True where the bytes, read as signed, have a zero point that may not be 0."""
    flipped = 128 if x.type.dtype is DType.UINT8 else 0
    return zero.operand is not None or zero.number != flipped

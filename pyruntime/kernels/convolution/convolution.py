"""Convolution on the GPU: the dispatches of each of the kernels that `kernels.convolution.candidates` chooses from.

A transposed one is an implicit GEMM over the outputs that meet the same filter positions, or makes one output an
invocation, on software adapters four of up to eight channels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyruntime.ir import DType, multiple, upper
from pyruntime.kernels.convolution.candidates import CONVOLUTIONS, ConvProblem, ConvWay
from pyruntime.kernels.convolution.integer_convolution import convolve_int8_direct, integer_convolve, is_int8
from pyruntime.kernels.convolution.operands import Convolution
from pyruntime.kernels.ir.dispatch import Dispatch, Operand, scratch
from pyruntime.kernels.ir.fallback import fallback_flag
from pyruntime.kernels.ir.indexing import collapse
from pyruntime.kernels.ir.launch import launch
from pyruntime.kernels.ir.node import facts_of
from pyruntime.kernels.products.integer_matmul import EXACT
from pyruntime.kernels.products.matmul import Matmul, Product
from pyruntime.kernels.products.tiling import MEDIUM, AnyTiling, Tiling
from pyruntime.kernels.windows import Window
from pyruntime.target import Target

__all__ = ["chosen_of_constant", "convolve", "convolve_transposed"]

DEPTHWISE_WIDTH = 16
"""Longest kernel row whose inputs the depthwise kernel keeps in registers."""


def convolve(target: Target, conv: Convolution) -> tuple[Dispatch, ...]:
    """y = conv(x, w) + bias, accumulated in float32 or int32, by the cheapest kernel."""
    if conv.weights_last:
        way = chosen_of_constant(target, conv)
        return convolve_int8_direct(
            target, conv, bool(_kernel_size(conv.window)["VOLUME"]), way.rows if way.kernel == "int8_direct" else 8
        )
    way = CONVOLUTIONS.choose(replace(problem_of(conv), half=conv.is_half and target.has_f16), target).way
    if way.kernel == "int8_direct":
        return convolve_int8_direct(target, conv, False, way.rows)
    if way.kernel == "bytes":
        return integer_convolve(target, conv)
    if way.kernel == "matmul" and way.tiling is not None:
        return _pointwise(target, conv, way.tiling)
    if isinstance(way.tiling, Tiling):
        return _gemm(target, conv, way.tiling)
    return _depthwise(target, conv) if way.kernel == "depthwise" else _direct(target, conv, way.rows)


def chosen_of_constant(target: Target, conv: Convolution) -> ConvWay:
    """What `convolve` would choose for weights that can have their channels last."""
    return CONVOLUTIONS.choose(replace(problem_of(conv), fixed=True), target).way


def problem_of(conv: Convolution, transposed: bool = False) -> ConvProblem:
    """The problem of a convolution; `transposed`: with x's and y's extents exchanged in its window."""
    window = conv.window
    flat = window.input[0] == window.kernel[0] == 1 and window.begin[0] == 0
    dense = window.dilations[1:] == (1, 1) and window.strides[2] <= 2 and window.kernel[2] <= DEPTHWISE_WIDTH
    plain = conv.x_zero_point is None and conv.w_zero_point is None
    floats = plain and all(o.type.dtype.is_float for o in (conv.x, conv.w, conv.y))
    kind = "float" if floats else "bytes" if not transposed and is_int8(conv) else "integer"
    alone = not transposed and conv.channels == 1 and flat and dense
    return ConvProblem(
        upper(conv.x.type.shape[0]),
        conv.group,
        upper(conv.channels),
        upper(conv.rows),
        window.at_most,
        transposed,
        not transposed and window.is_pointwise,
        alone and plain,
        alone and kind == "bytes" and window.begin[2] >= 0 and window.positions <= EXACT,
        kind,
    )


def _pointwise(target: Target, conv: Convolution, tiling: AnyTiling) -> tuple[Dispatch, ...]:
    """Return the dispatches of a pointwise convolution: the matrix product w @ x."""
    images, pixels = conv.x.type.shape[0], conv.window.pixels
    plane, matrix = conv.channels * pixels, conv.rows * conv.channels
    dims, (w_step, x_step) = collapse((images, conv.group), (0, matrix), (conv.group * plane, plane))
    product = Product(conv.rows, pixels, conv.channels, dims, w_step, x_step)
    flat = (images, conv.group * conv.rows, pixels)
    y = replace(conv.y, type=conv.y.type.with_shape(*flat))
    (made,) = Matmul(product, y, conv.w, conv.x, bias=conv.bias, tiling=tiling).lower(target)
    return (replace(made, kernel=replace(made.kernel, name=f"conv_{made.kernel.name}")),)


def _kernel_size(window: Window) -> dict[str, int | bool]:
    """Kernel extents, and whether the depth axis is real."""
    depth = window.input[0] != 1 or window.output[0] != 1 or window.kernel[0] != 1 or window.begin[0] != 0
    return dict(zip(("KD", "KH", "KW"), window.kernel, strict=True)) | {"VOLUME": depth}


def _flat(window: Window) -> Window:
    """A pointwise window over one axis of all pixels."""
    ones, pixels = (1, 1, 1), (1, 1, window.pixels)
    return Window(pixels, pixels, ones, ones, ones, (0, 0, 0), (0, 0, 0))


def _gemm(target: Target, conv: Convolution, tiling: Tiling) -> tuple[Dispatch, ...]:
    if conv.window.is_pointwise:
        conv = replace(conv, window=_flat(conv.window))
    window = conv.window
    quad = multiple(window.pixels, 4)
    flags = {"QUAD": quad, "POINTWISE": quad and window.is_pointwise, **_kernel_size(window)}
    return _tiled(target, conv, tiling, window, flags, {}, 1)


def _tiled(
    target: Target,
    conv: Convolution,
    tiling: Tiling,
    columns: Window,
    flags: Mapping[str, int | bool],
    values: Mapping[str, Any],
    phases: int,
) -> tuple[Dispatch, ...]:
    """The implicit GEMM of `phases` products, each over the filter positions and the pixels of `columns`."""
    y, slices, splits = conv.y, tiling.slices, tiling.splits
    count, depth = conv.x.type.shape[0] * columns.pixels, conv.channels * columns.positions
    if tiling.tile == MEDIUM.tile:
        flags = {**flags, "SIDE": tiling.high // 4, "TALL": 2}
    row_tiles, column_tiles = -(-conv.rows // tiling.high), -(-count // tiling.wide)
    tiles = row_tiles * column_tiles * conv.group * phases
    part = conv
    if splits > 1:
        sums = DType.FLOAT if y.type.dtype.is_float else DType.INT32
        part = replace(conv, y=scratch(sums, splits, *y.type.shape), bias=None)
    little = {"FALLBACK_ROWS": 1} if flags.get("POINTWISE") or flags.get("TRANSPOSED") else {"LIGHT": 1}
    flags = {
        **flags,
        "ROLLED": facts_of(target).long_epilogue and splits == 1,
        "SLICES": slices,
        "SLICED": slices > 1,
        "HALF": tiling.half,
        **fallback_flag(target, conv.flops, **little),
    }
    values = {
        **conv.sizes(),
        **values,
        "columns": count,
        "row_tiles": row_tiles,
        "column_tiles": column_tiles,
        "steps": tiling.steps(depth),
        "splits": splits,
        "size": y.type.size,
    }
    made = part.launch("conv_implicit_gemm", target.fold(tiles * splits), flags, values)
    first = replace(made, flops=conv.flops)
    return (first,) if splits == 1 else (first, _split_sum(target, conv, part.y, splits))


def _split_sum(target: Target, conv: Convolution, partial: Operand, splits: int) -> Dispatch:
    size, pixels = conv.y.type.size, math.prod(conv.y.type.shape[2:])
    values = {"size": size, "splits": splits, "pixels": pixels, "channels": conv.rows * conv.group}
    tensors = {"partial": partial, "bias": conv.bias, "y": conv.y}
    return launch("conv_split_sum", tensors, target.grid(-(-size // 4)), {"BIAS": conv.bias}, values)


def _direct(target: Target, conv: Convolution, rows: int) -> tuple[Dispatch, ...]:
    window = conv.window
    if window.is_pointwise:
        window = _flat(window)
        conv = replace(conv, window=window)
    quads = -(-window.pixels // 4)
    runs = conv.x.type.shape[0] * conv.group * quads
    blocks = -(-conv.rows // rows)
    flags = {**_kernel_size(window), "QUAD": multiple(window.pixels, 4), "FOUR": rows > 1, "EIGHT": rows == 8}
    values = {**conv.sizes(), "quads": quads, "blocks": blocks, "jobs": runs * blocks}
    return (conv.launch("conv_direct", target.grid(runs * blocks), flags, values),)


def _depthwise(target: Target, conv: Convolution) -> tuple[Dispatch, ...]:
    window = conv.window
    _, height, width = window.output
    quads = -(-width // 4)
    images, channels = conv.x.type.shape[:2]
    maps = conv.rows * conv.group
    jobs = images * maps * height * quads
    _, KH, KW = window.kernel
    flags = {"KH": KH, "KW": KW, "STRIDE": window.strides[2], "QUAD": multiple(width, 4), **fallback_flag(target)}
    values = {
        "input": [*window.input[1:], channels, images],
        "output": [height, width, maps, quads],
        "pads": list(window.begin[1:]),
        "window": [KH, KW, *window.strides[1:]],
        "multiplier": conv.rows,
        "jobs": jobs,
    }
    return (conv.launch("conv_depthwise", target.grid(jobs), flags, values),)


def convolve_transposed(target: Target, conv: Convolution) -> tuple[Dispatch, ...]:
    """y = the transpose of a convolution applied to x; `conv.window` maps y's axes (input) to x's (output)."""
    conv = replace(conv, window=_turned(conv.window))
    window = conv.window
    # The filter positions that meet outputs of one remainder are `periods` apart; they bring inputs `gaps` apart.
    common = [math.gcd(d, s) for d, s in zip(window.dilations, window.strides, strict=True)]
    periods = [s // g for s, g in zip(window.strides, common, strict=True)]
    gaps = [d // g for d, g in zip(window.dilations, common, strict=True)]
    grid = tuple(-(-o // s) for o, s in zip(window.output, window.strides, strict=True))
    phases = math.prod(window.strides)
    problem = replace(problem_of(conv, True), half=conv.is_half and target.has_f16)
    way = CONVOLUTIONS.choose(problem, target).way
    if not isinstance(way.tiling, Tiling):
        return _transposed_direct(target, conv, grid, phases, way.rows)
    kernel = tuple(-(-k // p) for k, p in zip(window.kernel, periods, strict=True))
    values = {
        "positions": [*window.kernel, window.positions],
        "grid": [*grid, math.prod(grid)],
        "periods": periods,
        "gaps": gaps,
    }
    depth = window.input[0] != 1 or window.output[0] != 1 or window.kernel[0] != 1
    flags = {"TRANSPOSED": True, "VOLUME": depth} | dict(zip(("KD", "KH", "KW"), kernel, strict=True))
    return _tiled(target, conv, way.tiling, replace(window, output=grid, kernel=kernel), flags, values, phases)


def _turned(window: Window) -> Window:
    """The window with x's and y's extents exchanged, as the kernels name them: `input` is what they read."""
    return replace(window, input=window.output, output=window.input)


def _transposed_direct(
    target: Target, conv: Convolution, grid: tuple[int, ...], phases: int, rows: int
) -> tuple[Dispatch, ...]:
    window, outputs = conv.window, math.prod(grid)
    values = {**conv.sizes(), "grid": [*grid, outputs], "phases": phases}
    del values["zero_stride"]
    defines = dict(zip(("KD", "KH", "KW"), window.kernel, strict=True))
    runs = conv.x.type.shape[0] * conv.group * phases
    if not target.is_software:
        jobs = runs * conv.rows * outputs
        return (conv.launch("conv_transpose", target.grid(jobs), defines, {**values, "jobs": jobs}),)
    quads, blocks = -(-outputs // 4), -(-conv.rows // rows)
    jobs = runs * blocks * quads
    values |= {"quads": quads, "blocks": blocks, "jobs": jobs}
    return (conv.launch("conv_transpose_rows", target.grid(jobs), {**defines, "ROWS": rows}, values),)

"""Int8 and uint8 convolution on the GPU as an int8 product, exact in 32 bits.

Rows are output channels, columns the pixels of an image, batches images and groups; k is a channel and a filter
position, as weights are stored. Tiles of the images are packed in fours along k while they are loaded into workgroup
memory; pointwise convolutions are products.
"""

from __future__ import annotations

import math
from dataclasses import replace

from pyruntime.ir import DType, multiple, upper
from pyruntime.kernels.convolution.operands import Convolution
from pyruntime.kernels.ir.dispatch import Dispatch
from pyruntime.kernels.products.description import Product
from pyruntime.kernels.products.integer_matmul import BYTES, EXACT, IntegerMatmul, zero_point
from pyruntime.kernels.products.packed_weights import in_words
from pyruntime.target import Target

__all__ = ["convolve_int8_direct", "integer_convolve", "is_int8"]


def is_int8(conv: Convolution) -> bool:
    """True for a convolution of int8 or uint8 into int32 that the kernel knows."""
    bytes_only = conv.x.type.dtype in BYTES and conv.w.type.dtype in BYTES and conv.y.type.dtype is DType.INT32
    w_zeros = conv.w_zero_point.type.size if conv.w_zero_point is not None else 1
    return bytes_only and conv.bias is None and (w_zeros == 1 or conv.group == 1)


def integer_convolve(target: Target, conv: Convolution) -> tuple[Dispatch, ...]:
    """Return the dispatches of a convolution of int8 or uint8 (`is_int8`)."""
    window = None if conv.window.is_pointwise else conv.window
    return (_named(replace(_as_product(conv), window=window).tiled(target)),)


def convolve_int8_direct(target: Target, conv: Convolution, volume: bool, rows: int) -> tuple[Dispatch, ...]:
    """The dispatch of one that `is_int8` on a processor: pointwise as a product, or of weights with channels last.

    Args:
        volume: the depth axis is real. rows: output channels an invocation, 1: depthwise.
    """
    if not conv.weights_last:
        return tuple(map(_named, _as_product(conv).lower(target)))
    if rows == 1:
        return (_depthwise(target, conv),)
    window = conv.window
    quads, blocks = -(-window.pixels // 4), -(-conv.rows // rows)
    jobs = conv.x.type.shape[0] * conv.group * quads * blocks
    words, workgroup = -(-conv.channels // 4), target.few(upper(jobs))
    few = min(4, upper(conv.channels))
    flags = {
        "EVEN": multiple(math.prod(window.input), 4),
        "WHOLE": few < 4 or multiple(conv.channels, 4),
        **{f"C{n}": few >= n for n in (2, 3, 4)},
        "QUAD": multiple(window.pixels, 4),
        "VOLUME": volume,
        "ONCE": upper(words) == 1 and 4 * window.positions <= EXACT,
        "ONE": upper(words) == 1,
        "CHUNKS": 4 * upper(words) > EXACT,
        "SIGNED_X": conv.x.type.dtype is DType.INT8,
        "SIGNED_W": conv.w.type.dtype is DType.INT8,
    }
    defines = {"ROWS": rows, "CHANNELS": few, "WG": workgroup, **flags}
    bound = replace(conv, x=in_words(conv.x), w=in_words(conv.w))
    chunks = -(-words // (EXACT // 4))
    shape = {"positions": [*window.kernel, window.positions]}
    counts = {"words": words, "chunks": chunks, "turns": chunks * window.positions, "quads": quads, "blocks": blocks}
    values = {**conv.sizes(), **shape, **counts, "jobs": jobs}
    made = bound.launch("conv_int8_direct", target.grid(jobs, workgroup), defines, values)
    return (replace(made, flops=conv.flops),)


def _depthwise(target: Target, conv: Convolution) -> Dispatch:
    """Return the dispatch of `shaders/convolution/conv_depthwise_int8.wgsl`, for depthwise convolutions."""
    window, (images, channels, *_) = conv.window, conv.x.type.shape
    _, height, width = window.output
    pad, quads, maps = window.begin[2], -(-width // 4), conv.rows * conv.group
    jobs = images * maps * height * quads
    workgroup = target.few(upper(jobs))
    flags = {
        "EVEN": isinstance(pad, int) and multiple(window.input[2], 4),
        "QUAD": multiple(width, 4),
        "SIGNED_X": conv.x.type.dtype is DType.INT8,
        "SIGNED_W": conv.w.type.dtype is DType.INT8,
    }
    sizes = {"KH": window.kernel[1], "KW": window.kernel[2], "STRIDE": window.strides[2], "WG": workgroup}
    sizes |= {"PAD": pad, "BEFORE": -(-pad // 4)} if flags["EVEN"] else {}
    bound = replace(conv, x=in_words(conv.x), w=in_words(conv.w))
    values = {
        "input": [*window.input[1:], channels, images],
        "output": [height, width, maps, quads],
        "stride": window.strides[1],
        "pads": list(window.begin[1:]),
        "multiplier": conv.rows,
        "jobs": jobs,
        "zero_stride": conv.sizes()["zero_stride"],
    }
    made = bound.launch("conv_depthwise_int8", target.grid(jobs, workgroup), {**sizes, **flags}, values)
    return replace(made, flops=conv.flops)


def _as_product(conv: Convolution) -> IntegerMatmul:
    """Describe a convolution as the integer product of weights and inputs, with its zero points."""
    w_zero = zero_point(conv.w_zero_point, 1)
    if w_zero.operand is not None and w_zero.operand.type.size == 1:
        w_zero = replace(w_zero, stride=0)
    window, x_zero = conv.window, zero_point(conv.x_zero_point, 0)
    images, channels, *extents = conv.x.type.shape
    plane = 1
    for extent in extents:
        plane *= extent
    depth = conv.channels * window.positions
    grouped = conv.group > 1
    product = Product(
        conv.rows,
        window.pixels,
        depth,
        (images, conv.group) if grouped else (images,),
        (0, conv.rows * depth) if grouped else (0,),
        (channels * plane, conv.channels * plane) if grouped else (channels * plane,),
    )
    y = replace(conv.y, type=conv.y.type.with_shape(images, conv.group * conv.rows, window.pixels))
    return IntegerMatmul(product, y, conv.w, conv.x, w_zero, x_zero)


def _named(made: Dispatch) -> Dispatch:
    return replace(made, kernel=replace(made.kernel, name=f"conv_{made.kernel.name}"))

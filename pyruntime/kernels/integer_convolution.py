"""Convolution of bytes on the GPU as a product of bytes, exact in 32 bits.

Rows are output channels, columns the pixels of an image, batches images and groups; k is a channel and a tap, as
weights are stored. Tiles of the pictures are packed by fours of k on their way into workgroup memory; pointwise ones
are products.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyruntime.ir import DType
from pyruntime.kernels.dispatch import Dispatch, Target
from pyruntime.kernels.integer_matmul import BYTES, tiled_integer_matmul, zero_point
from pyruntime.kernels.product import Product

if TYPE_CHECKING:
    from pyruntime.kernels.convolution import Convolution

__all__ = ["integer_convolve", "knows_bytes"]


def knows_bytes(conv: Convolution) -> bool:
    """True for a convolution of bytes into int32 that the kernel knows."""
    bytes_only = conv.x.type.dtype in BYTES and conv.w.type.dtype in BYTES and conv.y.type.dtype is DType.INT32
    w_zeros = conv.w_zero_point.type.size if conv.w_zero_point is not None else 1
    return bytes_only and conv.bias is None and (w_zeros == 1 or conv.group == 1)


def integer_convolve(target: Target, conv: Convolution) -> tuple[Dispatch, ...]:
    """The dispatch of one that `knows_bytes`."""
    w_zero = zero_point(conv.w_zero_point, 1)
    if w_zero.operand is not None and w_zero.operand.type.size == 1:
        w_zero = replace(w_zero, stride=0)
    window, x_zero = conv.window, zero_point(conv.x_zero_point, 0)
    images, channels, *extents = conv.x.type.shape
    plane = 1
    for extent in extents:
        plane *= extent
    depth = conv.channels * window.taps
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
    made = tiled_integer_matmul(
        target, y, conv.w, conv.x, product, w_zero, x_zero, None if window.is_pointwise else window
    )
    return (replace(made, kernel=replace(made.kernel, name=f"conv_{made.kernel.name}")),)

"""Col2Im: y[n, c, i] = sum over k, o with o * stride - pad + k * dilation = i of x[n, c * K + k, o].

K is the number of filter positions. Source: ONNX operator Col2Im (18).
"""

from __future__ import annotations

import math

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Target, inp, launch, out
from pyruntime.kernels.windows import Window
from pyruntime.ops.base import LATEST, op, refuse_float64
from pyruntime.ops.convolution.sliding import WindowOp, add_windows, volume


@op("Col2Im", opsets=range(18, LATEST + 1))
class Col2Im(WindowOp):
    """x: [N, C * prod(block), L], the L blocks in row-major order; y: [N, C, image]. Numeric types; bools are or-ed.

    `image_shape` and `block_shape` determine the output shape, so planning needs their values.
    """

    dilations: tuple[int, ...] | None = None

    def blocks(self, x: tuple[int, ...], image: tuple[int, ...], block: tuple[int, ...]) -> Window:
        """Return the sliding window whose im2col gives x. Raises InvalidGraph if the shape of x does not match."""
        if not image or len(image) != len(block) or min(*image, *block) < 1:
            self.fail("image_shape and block_shape of equal length, 1 at least", f"{list(image)}, {list(block)}")
        strides, dilations, pads = self.geometry(len(image), block)
        try:
            window = Window.over(image, block, strides, dilations, pads)
        except ValueError as error:
            self.fail("blocks that fit the padded image", error)
        if len(x) != 3 or x[1] % window.positions or x[2] != window.pixels:
            self.fail(f"columns [N, C * {window.positions}, {window.pixels}]", list(x))
        return window

    def infer(self, x: TensorType, image_shape: TensorType, block_shape: TensorType) -> tuple[TensorType, ...]:
        if x.dtype is DType.STRING:
            self.fail("a numeric type", x)
        window = self.blocks(x.shape, image_shape.ints(), block_shape.ints())
        return (x.with_shape(x.shape[0], x.shape[1] // window.positions, *window.input),)

    def evaluate(self, x: Array, image_shape: Array, block_shape: Array) -> tuple[Array, ...]:
        window = self.blocks(x.shape, tuple(map(int, image_shape)), tuple(map(int, block_shape)))
        columns = x.reshape(x.shape[0], x.shape[1] // window.positions, *window.kernel, *window.output)
        return (add_windows(columns, window),)

    def lower(
        self, target: Target, x: TensorType, image_shape: TensorType, block_shape: TensorType
    ) -> tuple[Dispatch, ...]:
        refuse_float64(x)
        (y,) = self.infer(x, image_shape, block_shape)
        window = volume(self.blocks(x.shape, image_shape.ints(), block_shape.ints()))
        flags = {"WIDE": x.dtype.is_wide, "BOOLEAN": x.dtype is DType.BOOL}
        extents = dict(zip(("KD", "KH", "KW"), window.kernel, strict=True))
        values = {
            "image": [*window.input, math.prod(window.input)],
            "blocks": [*window.output, window.pixels],
            "strides": list(window.strides),
            "dilations": list(window.dilations),
            "pads": list(window.begin),
            "size": y.size,
        }
        tensors, grid = {"x": inp(0, x), "y": out(0, y)}, target.grid(-(-y.size // 4))
        return (launch("col2im", tensors, grid, {**extents, **flags}, values, x.size),)

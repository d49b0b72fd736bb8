"""Base class and GPU lowering of MaxPool, AveragePool and LpPool, including windows that cover the whole input."""

from __future__ import annotations

import math

from pyruntime.ir import DType, TensorType
from pyruntime.kernels import Dispatch, Operand, Target, inp, launch, out
from pyruntime.kernels.rows.reduce import Fold, reduction
from pyruntime.kernels.windows import Window
from pyruntime.ops.base import Unsupported
from pyruntime.ops.convolution.sliding import SlidingOp, volume
from pyruntime.ops.reduction.folds import FOLDS

__all__ = ["PoolOp", "global_pool", "norm_fold", "pool"]

_UNROLLED = 64
"""Largest number of filter positions for which the kernel's loops have constant bounds."""

LOWEST = {DType.INT8: -128, DType.UINT8: 0}


class PoolOp(SlidingOp):
    """Base of pooling operators. x: [N, C, D1 .. Dn]; y: [N, C, O1 .. On], one element per window."""

    ceil_mode: int
    kernel_shape: tuple[int, ...]

    def over(self, spatial: tuple[int, ...]) -> Window:
        """Return the window for spatial axes D1 .. Dn. Raises InvalidGraph."""
        return self.window(spatial, self.kernel_shape, bool(self.ceil_mode))

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        return (x.with_shape(*x.shape[:2], *self.over(self.spatial(x)).output),)


def norm_fold(p: int, dtype: DType) -> Fold:
    """Return the reduction (sum of |x|^p)^(1/p)."""
    if p in (1, 2):
        fold = FOLDS[f"L{p}"](dtype)
        assert fold is not None
        return fold
    # WGSL may compute pow(0, p) as exp2(p * log2(0)), so zero is a separate case.
    power = f"if (x == 0.0) {{ return 0.0; }} return pow(abs(x), {float(p)!r});"
    root = f"if (a == 0.0) {{ return 0.0; }} return pow(a, 1.0 / {float(p)!r});"
    return Fold(f"pool_norm{p}", "f32", "0.0", power, "a + b", root, state=DType.FLOAT)


def global_pool(target: Target, fold: Fold | None, x: TensorType, y: TensorType) -> tuple[Dispatch, ...]:
    """Return dispatches for y: [N, C, 1 .. 1] = `fold` over all spatial axes of x: [N, C, D1 .. Dn].

    Raises:
        Unsupported: `fold` is None.
    """
    if fold is None:
        raise Unsupported(f"{x.dtype.onnx_name} is pooled on the host")
    return reduction(target, fold, out(0, y), inp(0, x), tuple(range(2, x.rank)))


def pool(
    target: Target,
    kind: str,
    window: Window,
    x: TensorType,
    outputs: tuple[Operand, ...],
    count_padding: bool = False,
    p: int = 2,
    column_major: bool = False,
) -> tuple[Dispatch, ...]:
    """Return the dispatch of the sliding-window pooling kernel.

    Args:
        kind: 'MAXIMUM', 'MEAN' or 'NORM'.
        outputs: y and, optionally, the indices of maxima.
        count_padding: 'MEAN' divides by the number of positions in the padded input.
        p: exponent of 'NORM'.
        column_major: indices count the first spatial axis fastest.
    """
    reach = [i + b + e for i, b, e in zip(window.input, window.begin, window.end, strict=True)]
    window = volume(window)
    flags = {
        kind: True,
        "FLOAT": kind == "MAXIMUM" and x.dtype.is_float,
        "INDICES": len(outputs) > 1,
        "COUNT_PADDING": count_padding,
        "WIDE": window.positions > _UNROLLED,
    }
    extents = dict(zip(("KD", "KH", "KW"), window.kernel, strict=True))
    d, h, w = window.input
    y = outputs[0].type
    values = {
        "input": [*window.input, math.prod(window.input)],
        "output": [*window.output, window.pixels],
        "strides": list(window.strides),
        "dilations": list(window.dilations),
        "pads": list(window.begin),
        "reach": [1] * (3 - len(reach)) + reach,
        "places": [1, d, d * h] if column_major else [h * w, w, 1],
        "size": y.size,
        "lowest": 0xFF800000 if x.dtype.is_float else LOWEST.get(x.dtype, 0),
        "p": float(p),
    }
    tensors = {"x": inp(0, x), **dict(zip(("y", "indices"), outputs, strict=False))}
    grid, flops = target.grid(-(-y.size // 4)), y.size * window.positions
    return (launch("pool", tensors, grid, {**extents, **flags}, values, flops),)

"""What MaxPool, AveragePool and LpPool lower to; and the global pools they are where one window covers everything."""

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
"""Filter positions up to which a window's loops have constant bounds."""

LOWEST = {DType.INT8: -128, DType.UINT8: 0}


class PoolOp(SlidingOp):
    """x: [N, C, D1 .. Dn]; y: [N, C, O1 .. On], a number for each window."""

    ceil_mode: int
    kernel_shape: tuple[int, ...]

    def over(self, spatial: tuple[int, ...]) -> Window:
        """The window over spatial axes D1 .. Dn. Raises InvalidGraph."""
        return self.window(spatial, self.kernel_shape, bool(self.ceil_mode))

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        return (x.with_shape(*x.shape[:2], *self.over(self.spatial(x)).output),)


def norm_fold(p: int, dtype: DType) -> Fold:
    """(sum of |x|^p)^(1/p)."""
    if p in (1, 2):
        fold = FOLDS[f"L{p}"](dtype)
        assert fold is not None
        return fold
    # pow(0, p) is exp2(p * log2(0)): left to no compiler.
    power = f"if (x == 0.0) {{ return 0.0; }} return pow(abs(x), {float(p)!r});"
    root = f"if (a == 0.0) {{ return 0.0; }} return pow(a, 1.0 / {float(p)!r});"
    return Fold(f"pool_norm{p}", "f32", "0.0", power, "a + b", root, state=DType.FLOAT)


def global_pool(target: Target, fold: Fold | None, x: TensorType, y: TensorType) -> tuple[Dispatch, ...]:
    """y: [N, C, 1 .. 1] = the fold over all spatial axes of x: [N, C, D1 .. Dn]."""
    if fold is None:
        raise Unsupported(f"no exact fold of {x.dtype.onnx_name} on the GPU")
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
    """The sliding kernel.

    Args:
        kind: 'MAXIMUM', 'MEAN' or 'NORM'.
        outputs: y, and with it the indices of maxima.
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

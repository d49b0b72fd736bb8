"""LayerNormalization and RMSNormalization: normalize rows, then scale and shift them. Source: ONNX operators.

    LayerNormalization  y = (x - mean) / sqrt(mean((x - mean)²) + epsilon) · scale + bias
    RMSNormalization    y = x / sqrt(mean(x²) + epsilon) · scale

Means are over the dimensions from `axis` on. Computed in float32 (float64 inputs: float64), y rounded once. The
variance is that of the centered row, so a large mean does not cost precision.
"""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Operand, Target, elementwise, inp, out, scratch
from pyruntime.kernels.rows.rows import Norm, normalize_rows, rows_of
from pyruntime.ops.base import LATEST, Op, Unsupported, attributes, broadcasts_to, op, refuse_float64
from pyruntime.ops.operands import optional


@attributes
class _Norm(Op):
    """Normalization over the dimensions from `axis` on."""

    axis: int = -1
    epsilon: float = 1e-5
    stash_type: int = 1

    def reduced(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the normalized axes. Raises InvalidGraph if `axis` is out of range."""
        axis = self.axis_of(self.axis, len(shape))
        return tuple(range(axis, len(shape)))

    def check_broadcast(self, x: TensorType, other: TensorType | None) -> None:
        """Raise InvalidGraph where a scale or bias does not broadcast to x, or an input is not a float tensor."""
        if not x.dtype.is_float or (other is not None and not other.dtype.is_float):
            self.fail("floats", f"{x} and {other}")
        if other is not None and not broadcasts_to(other.shape, x.shape):
            self.fail("scale and bias that broadcast to x", f"{other} for {x}")

    def statistics(self, x: Array, centre: bool) -> tuple[Array, Array]:
        """Return mean (0 unless `centre`) and inverse standard deviation, in float64."""
        axes = self.reduced(x.shape)
        wide = x.astype(np.float64)
        mean = np.mean(wide, axis=axes, keepdims=True) if centre else np.zeros((1,) * x.ndim)
        spread = np.mean(np.square(wide - mean), axis=axes, keepdims=True)
        return mean, 1.0 / np.sqrt(spread + self.epsilon)

    def rows_share(self, x: TensorType, other: TensorType | None) -> bool:
        """Whether all rows use the same elements of `other` in order, so that the kernel can read it by column."""
        if other is None:
            return True
        axes = self.reduced(x.shape)
        trailing = tuple(x.shape[a] for a in axes)
        lead = len(other.shape) - len(trailing)
        return lead >= 0 and other.shape[lead:] == trailing and all(d == 1 for d in other.shape[:lead])


@op("LayerNormalization", opsets=range(1, LATEST + 1))
class LayerNormalization(_Norm):
    """Outputs y, mean and inverse standard deviation; the last two have size 1 along the normalized axes."""

    def infer(self, x: TensorType, scale: TensorType, bias: TensorType | None = None) -> tuple[TensorType, ...]:
        dtype = self.same_dtype(x, scale, bias)
        axes = self.reduced(x.shape)
        self.check_broadcast(x, scale)
        self.check_broadcast(x, bias)
        try:
            stash = DType.from_code(self.stash_type)
        except KeyError:
            self.fail("stash_type to be a float type", self.stash_type)
        shape = tuple(1 if d in axes else n for d, n in enumerate(x.shape))
        return TensorType(dtype, x.shape), TensorType(stash, shape), TensorType(stash, shape)

    def evaluate(self, x: Array, scale: Array, bias: Array | None = None) -> tuple[Array, ...]:
        with np.errstate(all="ignore"):
            mean, inv = self.statistics(x, True)
            y = (x.astype(np.float64) - mean) * inv * scale
            if bias is not None:
                y = y + bias
        return y.astype(x.dtype), mean.astype(np.float32), inv.astype(np.float32)

    def lower(
        self, target: Target, x: TensorType, scale: TensorType, bias: TensorType | None = None
    ) -> tuple[Dispatch, ...]:
        refuse_float64(x)
        if not x.size:
            raise Unsupported("the mean of no elements is NaN on the host")
        types = self.infer(x, scale, bias)
        rows = rows_of(x.shape, self.reduced(x.shape)[0] if x.rank else 0, flatten=True)
        mean, inv = (out(i, types[i]) if self.wants(i) else None for i in (1, 2))
        if self.rows_share(x, scale) and self.rows_share(x, bias):
            shift = optional(2, bias)
            norm = Norm(self.epsilon, False, inp(1, scale), shift, mean, inv)
            return (normalize_rows(target, out(0, types[0]), inp(0, x), rows, norm),)
        middle = scratch(DType.FLOAT, *x.shape)
        first = normalize_rows(target, middle, inp(0, x), rows, Norm(self.epsilon, False, None, None, mean, inv))
        operands: dict[str, Operand] = {"x": middle, "scale": inp(1, scale)}
        if bias is not None:
            operands["bias"] = inp(2, bias)
        expr = "x * scale + bias" if bias is not None else "x * scale"
        return (first, elementwise(target, "scale_shift", operands, out(0, types[0]), expr))


@op("RMSNormalization", opsets=range(23, LATEST + 1))
class RMSNormalization(_Norm):
    """x: [..], normalized from `axis` on; scale: broadcastable to those axes; y: shape of x, type of `scale`."""

    def infer(self, x: TensorType, scale: TensorType) -> tuple[TensorType, ...]:
        self.reduced(x.shape)
        self.check_broadcast(x, scale)
        return (TensorType(scale.dtype, x.shape),)

    def evaluate(self, x: Array, scale: Array) -> tuple[Array, ...]:
        with np.errstate(all="ignore"):
            _, inv = self.statistics(x, False)
            return ((x.astype(np.float64) * inv * scale).astype(scale.dtype),)

    def lower(self, target: Target, x: TensorType, scale: TensorType) -> tuple[Dispatch, ...]:
        refuse_float64(x, scale)
        (y,) = self.infer(x, scale)
        rows = rows_of(x.shape, self.reduced(x.shape)[0] if x.rank else 0, flatten=True)
        if self.rows_share(x, scale):
            norm = Norm(self.epsilon, True, inp(1, scale))
            return (normalize_rows(target, out(0, y), inp(0, x), rows, norm),)
        middle = scratch(DType.FLOAT, *x.shape)
        first = normalize_rows(target, middle, inp(0, x), rows, Norm(self.epsilon, True))
        operands = {"x": middle, "scale": inp(1, scale)}
        return (first, elementwise(target, "scale", operands, out(0, y), "x * scale"))

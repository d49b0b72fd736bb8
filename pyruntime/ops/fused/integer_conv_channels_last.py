"""Integer convolutions with weights stored channels-last, and the operator that reorders such weights.

    ChannelsLast               y[m, k, c] = x[m, c, k] at filter position k; channels zero-padded to a multiple of 4
    ConvIntegerChannelsLast    ConvInteger(x, w), given ChannelsLast(w) instead of w
    QLinearConvChannelsLast    QLinearConv(x, w), given ChannelsLast(w) instead of w

`passes/quantization/weights_channels_last.py` creates them from ConvInteger and QLinearConv.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Operand, Source, Target, gather_map, inp, out
from pyruntime.kernels.convolution.operands import Convolution
from pyruntime.ops.base import Op, Value, attributes, op
from pyruntime.ops.convolution.conv_integer import BYTES, ConvInteger, QLinearConv
from pyruntime.ops.convolution.sliding import conv_attributes

__all__ = ["ChannelsLast", "ConvIntegerChannelsLast", "QLinearConvChannelsLast", "channels_last_weights"]


@op("ChannelsLast", opsets=range(1, 2), domain="pyruntime")
class ChannelsLast(Op):
    """x: int8 or uint8 [M, C, K1 .. Kn]; y: [M, K1 .. Kn, C rounded up to a multiple of four]."""

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        if x.dtype not in BYTES or x.rank < 3:
            self.fail("bytes [M, C, K1, ...]", x)
        return (x.with_shape(x.shape[0], *x.shape[2:], -(-x.shape[1] // 4) * 4),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        last = np.moveaxis(x, 1, -1)
        return (np.pad(last, [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[1] % 4)]),)

    def lower(self, target: Target, x: TensorType) -> tuple[Dispatch, ...]:
        (y,) = self.infer(x)
        zero = "0i" if x.dtype.is_signed else "0u"
        code = (
            "let line = i / params.pitch;\n"
            "  let c = i - line * params.pitch;\n"
            f"  if (c >= params.channels) {{ return {zero}; }}\n"
            "  let m = line / params.positions;\n"
            "  return load_x((m * params.channels + c) * params.positions + line - m * params.positions);"
        )
        values = {"pitch": y.shape[-1], "channels": x.shape[1], "positions": math.prod(x.shape[2:])}
        name = f"channels_last_{x.dtype.onnx_name}"
        return (gather_map(target, name, out(0, y), [Source("x", inp(0, x))], code, values),)


@attributes
class _ChannelsLastWeights(Value):
    """Mixin for weights stored as [M, K1 .. Kn, C / group rounded up to a multiple of 4]."""

    channels: int = 0

    def standard_type(self, w: TensorType) -> TensorType:
        """Return the type of w in layout [M, C / group, K1 .. Kn]."""
        return w.with_shape(w.shape[0], self.channels, *w.shape[1:-1])

    def standard_weights(self, w: Array) -> Array:
        """Return the weights in layout [M, C / group, K1 .. Kn], without padding."""
        return np.moveaxis(w, -1, 1)[:, : self.channels]

    def describe(self, x: Operand, w: Operand, y: Operand, zeros: tuple[Operand | None, Operand | None]) -> Convolution:
        made: Convolution = super().describe(x, w, y, zeros)  # type: ignore[misc]
        return replace(made, weights_last=True)


@op("ConvIntegerChannelsLast", opsets=range(1, 2), domain="pyruntime")
class ConvIntegerChannelsLast(_ChannelsLastWeights, ConvInteger):
    """w: [M, K1 .. Kn, C / group rounded up to a multiple of four]; channels: C / group."""


@op("QLinearConvChannelsLast", opsets=range(1, 2), domain="pyruntime")
class QLinearConvChannelsLast(_ChannelsLastWeights, QLinearConv):
    """w: [M, K1 .. Kn, C / group rounded up to a multiple of four]; channels: C / group."""


def channels_last_weights(conv: ConvInteger | QLinearConv, channels: int) -> Op:
    """Return the operator equivalent to `conv` for weights reordered by ChannelsLast."""
    kind = ConvIntegerChannelsLast if isinstance(conv, ConvInteger) else QLinearConvChannelsLast
    return kind(channels=channels, **conv_attributes(conv))

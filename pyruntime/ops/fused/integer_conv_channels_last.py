"""Convolutions of bytes whose weights have their channels last. Made by passes, not by models.

ChannelsLast          y[m, tap, c] = x[m, c, tap], c up to the next multiple of four; what is past the last is 0
ConvIntegerOfTaps     ConvInteger, and
QLinearConvOfTaps     QLinearConv, with w as ChannelsLast has it
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Operand, Source, Target, gather_map, inp, out
from pyruntime.kernels.convolution.operands import Convolution
from pyruntime.ops.base import Op, op
from pyruntime.ops.convolution.conv_integer import BYTES, ConvInteger, QLinearConv

__all__ = ["ChannelsLast", "ConvIntegerOfTaps", "QLinearConvOfTaps", "of_taps"]


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
            "  let m = line / params.taps;\n"
            "  return load_x((m * params.channels + c) * params.taps + line - m * params.taps);"
        )
        values = {"pitch": y.shape[-1], "channels": x.shape[1], "taps": math.prod(x.shape[2:])}
        name = f"channels_last_{x.dtype.onnx_name}"
        return (gather_map(target, name, out(0, y), [Source("x", inp(0, x))], code, values),)


@dataclass(frozen=True, kw_only=True)
class _OfTaps:
    """What both share: weights as they were."""

    channels: int = 0

    def plain(self, w: TensorType) -> TensorType:
        """[M, C, K1 .. Kn] of w: [M, K1 .. Kn, C rounded up]."""
        return w.with_shape(w.shape[0], self.channels, *w.shape[1:-1])

    def plainly(self, w: Array) -> Array:
        """Such weights with their channels where the model has them."""
        return np.moveaxis(w, -1, 1)[:, : self.channels]

    def exactly(self, x: Operand, w: Operand, y: Operand, zeros: tuple[Operand | None, Operand | None]) -> Convolution:
        made: Convolution = super().exactly(x, w, y, zeros)  # type: ignore[misc]
        return replace(made, taps_last=True)


@op("ConvIntegerOfTaps", opsets=range(1, 2), domain="pyruntime")
class ConvIntegerOfTaps(_OfTaps, ConvInteger):
    """w: [M, K1 .. Kn, C / group rounded up to a multiple of four]; channels: C / group."""


@op("QLinearConvOfTaps", opsets=range(1, 2), domain="pyruntime")
class QLinearConvOfTaps(_OfTaps, QLinearConv):
    """w: [M, K1 .. Kn, C / group rounded up to a multiple of four]; channels: C / group."""


def of_taps(conv: ConvInteger | QLinearConv, channels: int) -> Op:
    """The operator that does what `conv` does, of weights with their channels last."""
    names = ("group", "dilations", "kernel_shape", "auto_pad", "pads", "strides")
    given = {n: getattr(conv, n) for n in names}
    kind = ConvIntegerOfTaps if isinstance(conv, ConvInteger) else QLinearConvOfTaps
    return kind(channels=channels, **given)

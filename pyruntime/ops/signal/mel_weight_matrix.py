"""MelWeightMatrix: triangular filters on the mel scale. Source: ONNX operator MelWeightMatrix."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.ir import Array, Constant, DType, TensorType
from pyruntime.kernels import Dispatch, Target, constant, out, strided_copy
from pyruntime.kernels.ir.indexing import contiguous
from pyruntime.ops.base import LATEST, Op, Unsupported, op
from pyruntime.ops.operands import named


@op("MelWeightMatrix", opsets=range(17, LATEST + 1))
class MelWeightMatrix(Op):
    """y[k, m]: weight of frequency bin k in mel band m; mel(f) = 2595·log10(1 + f/700).

    Band m rises from 0 at edge m to 1 at edge m + 1 and falls to 0 at edge m + 2. The num_mel_bins + 2 edges divide
    [mel(lower_edge_hertz), mel(upper_edge_hertz)) evenly and are rounded down to bins of sample_rate / (dft_length + 1)
    hertz. Inputs: scalars. y: [dft_length div 2 + 1, num_mel_bins] in type `output_datatype`.
    """

    operands = named("num_mel_bins dft_length sample_rate lower_edge_hertz upper_edge_hertz")

    output_datatype: int = DType.FLOAT.code

    def infer(self, *inputs: Any) -> tuple[TensorType, ...]:
        num_mel_bins, dft_length, sample_rate, lower_edge_hertz, upper_edge_hertz = self.operands(*inputs)
        for scalar in (num_mel_bins, dft_length, sample_rate, lower_edge_hertz, upper_edge_hertz):
            if scalar.size != 1:
                self.fail("scalars", scalar)
        bands, length = num_mel_bins.ints()[0], dft_length.ints()[0]
        if bands < 0 or length < 0:
            self.fail("num_mel_bins and dft_length of 0 or more", f"{bands} and {length}")
        return (TensorType(DType.from_code(self.output_datatype), (length // 2 + 1, bands)),)

    def evaluate(self, *inputs: Any) -> tuple[Array, ...]:
        num_mel_bins, dft_length, sample_rate, lower_edge_hertz, upper_edge_hertz = self.operands(*inputs)
        bands, length = int(num_mel_bins.reshape(())), int(dft_length.reshape(()))
        low, high = (
            2595 * np.log10(1 + e.reshape(()).astype(float) / 700) for e in (lower_edge_hertz, upper_edge_hertz)
        )
        mels = low + np.arange(bands + 2) * (high - low) / (bands + 2)
        hertz = 700 * (10 ** (mels / 2595) - 1)
        edges = (length + 1) * hertz // float(sample_rate.reshape(()))
        left, center, right = edges[:-2], edges[1:-1], edges[2:]
        k = np.arange(length // 2 + 1)[:, None]
        up = np.where(center > left, (k - left) / np.maximum(center - left, 1), 1)
        down = (right - k) / np.maximum(right - center, 1)
        y = np.where((left <= k) & (k <= center), up, np.where((center < k) & (k < right), down, 0))
        return (y.astype(DType.from_code(self.output_datatype).numpy),)

    def lower(self, target: Target, *scalars: TensorType) -> tuple[Dispatch, ...]:
        if not all(x.is_known for x in scalars):
            raise Unsupported("inputs that are not constant")
        (y,) = self.infer(*scalars)
        if y.dtype.compute == "":
            raise Unsupported(f"{y.dtype.onnx_name} tensors live on the host")
        weights = Constant.from_array(self.evaluate(*(x.value() for x in scalars))[0], y.dtype)
        return (strided_copy(target, "mel_weights", out(0, y), constant(weights), 0, contiguous(y.shape)),)

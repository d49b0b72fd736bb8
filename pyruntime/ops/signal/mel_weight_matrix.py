"""MelWeightMatrix: triangular filters on the mel scale. Source: ONNX operator MelWeightMatrix."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.ir import DType, TensorType
from pyruntime.ops.base import LATEST, op
from pyruntime.ops.decomposed import Decomposed, Expansion
from pyruntime.ops.operands import named


@op("MelWeightMatrix", opsets=range(17, LATEST + 1))
class MelWeightMatrix(Decomposed):
    """y[k, m]: weight of frequency bin k in mel band m; mel(f) = 2595·log10(1 + f/700).

    Band m rises from 0 at edge m to 1 at edge m + 1 and falls to 0 at edge m + 2. The num_mel_bins + 2 edges divide
    [mel(lower_edge_hertz), mel(upper_edge_hertz)) evenly and are rounded down to bins of sample_rate / (dft_length + 1)
    hertz. Inputs: scalars. y: [dft_length div 2 + 1, num_mel_bins] in type `output_datatype`.
    """

    operands = named("num_mel_bins dft_length sample_rate lower_edge_hertz upper_edge_hertz")

    output_datatype: int = DType.FLOAT.code

    def expand(self, body: Expansion, *inputs: Any) -> tuple[TensorType | None, ...]:
        given = self.operands(*inputs)
        for scalar in given:
            if scalar.size != 1:
                self.fail("scalars", scalar)
        bands, length = given.num_mel_bins.ints()[0], given.dft_length.ints()[0]
        if bands < 0 or length < 0:
            self.fail("num_mel_bins and dft_length of 0 or more", f"{bands} and {length}")
        rate, *hertz = (float(x.value().reshape(())) for x in given[2:])
        low, high = (2595 * np.log10(1 + e / 700) for e in hertz)
        mels = low + np.arange(bands + 2) * (high - low) / (bands + 2)
        edges = (length + 1) * (700 * (10 ** (mels / 2595) - 1)) // rate
        left, center, right = edges[:-2], edges[1:-1], edges[2:]
        k = np.arange(length // 2 + 1)[:, None]
        up = np.where(center > left, (k - left) / np.maximum(center - left, 1), 1)
        down = (right - k) / np.maximum(right - center, 1)
        y = np.where((left <= k) & (k <= center), up, np.where((center < k) & (k < right), down, 0))
        dtype = DType.from_code(self.output_datatype)
        return (body.constant(y.astype(dtype.numpy), dtype),)

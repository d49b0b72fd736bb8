"""HannWindow, HammingWindow, BlackmanWindow: cosine-sum windows. Source: ONNX operators of these names."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Target, gather_map, out
from pyruntime.ops.base import LATEST, Op, Unsupported, attributes, op


@attributes
class _Window(Op):
    """y[n] = a_0 + a_1·cos(2πn/P) + a_2·cos(4πn/P), P = size with `periodic`, else size − 1.

    size: a scalar; y: [size] in type `output_datatype`.
    """

    terms: ClassVar[tuple[float, float, float]]
    output_datatype: int = DType.FLOAT.code
    periodic: int = 1

    def infer(self, size: TensorType) -> tuple[TensorType, ...]:
        if size.size != 1:
            self.fail("a scalar", size)
        n = size.ints()[0]
        if n < 0:
            self.fail("a size of 0 or more", n)
        return (TensorType(DType.from_code(self.output_datatype), (n,)),)

    def evaluate(self, size: Array) -> tuple[Array, ...]:
        n = int(size.reshape(()))
        turns = np.arange(n) / np.float64(n if self.periodic else n - 1)
        a0, a1, a2 = self.terms
        # This order of terms makes the middle of BlackmanWindow exactly 1, which matters for integer types.
        y = a1 * np.cos(2 * np.pi * turns) + a2 * np.cos(4 * np.pi * turns) + a0
        return (y.astype(DType.from_code(self.output_datatype).numpy),)

    def lower(self, target: Target, size: TensorType) -> tuple[Dispatch, ...]:
        (y,) = self.infer(size)
        period = y.size if self.periodic else y.size - 1
        if not y.dtype.is_float or y.dtype.compute != "f32":
            raise Unsupported(f"{y.dtype.onnx_name} windows are exact on the host")
        if period < 1 or period >= 1 << 28:
            raise Unsupported(f"a period of {period}")
        a0, a1, a2 = self.terms
        element = "let c = cos_turn(i % params.period, params.period);\n"
        element += "  return params.a0 + params.a1 * c + params.a2 * (2.0 * c * c - 1.0);"
        values = {"period": period, "a0": a0, "a1": a1, "a2": a2}
        return (gather_map(target, "cosine_window", out(0, y), (), element, values),)


@op("HannWindow", opsets=range(17, LATEST + 1))
class HannWindow(_Window):
    """a = (1/2, −1/2, 0)."""

    terms = (0.5, -0.5, 0.0)


@op("HammingWindow", opsets=range(17, LATEST + 1))
class HammingWindow(_Window):
    """a = (25/46, −21/46, 0)."""

    terms = (25 / 46, -21 / 46, 0.0)


@op("BlackmanWindow", opsets=range(17, LATEST + 1))
class BlackmanWindow(_Window):
    """a = (0.42, −0.5, 0.08)."""

    terms = (0.42, -0.5, 0.08)

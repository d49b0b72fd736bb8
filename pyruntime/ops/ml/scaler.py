"""Scaler: y = (x - offset) · scale. Source: ONNX operator ai.onnx.ml.Scaler."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, Constant, DType, TensorType
from pyruntime.kernels import Dispatch, Target, constant, elementwise, inp, out
from pyruntime.ops.base import Op, Unsupported, op
from pyruntime.ops.ml.shared import ALL, numbers


@op("Scaler", domain="ai.onnx.ml", opsets=ALL)
class Scaler(Op):
    """x: [N, F] or [F]; offset and scale: F numbers, or a single one (for x of any shape). y: float32."""

    offset: tuple[float, ...] | None = None
    scale: tuple[float, ...] | None = None

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        numbers(self, x)
        for name, values in (("offset", self.offset), ("scale", self.scale)):
            if values is not None and len(values) != 1 and (x.rank not in (1, 2) or len(values) != x.shape[-1]):
                self.fail(f"one number as {name}, or one for every column of [N, F]", f"{len(values)} for {x}")
        return (TensorType(DType.FLOAT, x.shape),)

    def _terms(self) -> tuple[Array, Array]:
        return np.array(self.offset or (0.0,), np.float32), np.array(self.scale or (1.0,), np.float32)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        offset, scale = self._terms()
        wide = x if x.dtype == np.float64 else x.astype(np.float32)
        return (((wide - offset) * scale).reshape(x.shape).astype(np.float32),)

    def lower(self, target: Target, x: TensorType) -> tuple[Dispatch, ...]:
        if x.dtype.is_wide:
            raise Unsupported(f"{x.dtype.onnx_name} is scaled on the host")
        offset, scale = (constant(Constant.from_array(t)) for i, t in enumerate(self._terms()))
        y = TensorType(DType.FLOAT, x.shape)
        operands = {"x": inp(0, x), "offset": offset, "scale": scale}
        return (elementwise(target, "scaler", operands, out(0, y), "(f32(x) - offset) * scale"),)

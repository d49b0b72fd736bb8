"""Dropout: y = x at inference; in training random elements become 0 and others are scaled. Source: ONNX."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Target, elementwise, inp, out, strided_copy
from pyruntime.kernels.ir.indexing import contiguous
from pyruntime.ops.base import LATEST, Op, Unsupported, op
from pyruntime.ops.elementwise.elementwise import FLOATS, FLOATS_8
from pyruntime.ops.interpreter import current


class _Dropout(Op):
    """Dropout at inference: y = x, and the mask is `kept` everywhere."""

    mask_is_bool = True
    kept = True

    def infer(self, x: TensorType, *_: Any) -> tuple[TensorType, ...]:
        if x.dtype not in FLOATS | FLOATS_8:
            self.fail("a tensor of floats", x.dtype.type_string)
        mask = TensorType(DType.BOOL if self.mask_is_bool else x.dtype, x.shape)
        return (TensorType(x.dtype, x.shape), mask)

    def evaluate(self, x: Array, *_: Any) -> tuple[Array, ...]:
        return (x, np.full(x.shape, self.kept, np.bool_ if self.mask_is_bool else x.dtype))

    def alias(self, x: TensorType, *_: Any) -> int | None:
        return None if self.wants(1) else 0

    def lower(self, target: Target, x: TensorType, *_: Any) -> tuple[Dispatch, ...]:
        y, mask = self.infer(x)
        made: list[Dispatch] = []
        if self.wants(0):
            made.append(strided_copy(target, "dropout", out(0, y), inp(0, x), 0, contiguous(x.shape)))
        if self.wants(1):
            if mask.dtype is DType.DOUBLE:
                raise Unsupported("a float64 mask is made on the host")
            value = str(self.kept).lower() if self.mask_is_bool else str(float(self.kept))
            made.append(elementwise(target, "dropout_mask", {}, out(1, mask), value))
        return tuple(made)


@op("Dropout", opsets=range(10, 12))
class Dropout10(_Dropout):
    """Inference only. The mask is bool and false, as in onnxruntime; ONNX does not specify it."""

    kept = False
    ratio: float = 0.5


@op("Dropout", opsets=range(7, 10))
class Dropout7(Dropout10):
    """Inference only. The mask has x's type and is 0, as in onnxruntime; ONNX does not specify it."""

    mask_is_bool = False


@op("Dropout", opsets=range(12, LATEST + 1))
class Dropout(_Dropout):
    """y = mask x / (1 - ratio), mask = uniform(0, 1) >= ratio, if training_mode is true; else y = x.

    `ratio` defaults to 0.5, `training_mode` to false. Random numbers come from NumPy's RandomState(seed).
    """

    pure = False

    seed: int | None = None

    def infer(
        self, x: TensorType, ratio: TensorType | None = None, training_mode: TensorType | None = None
    ) -> tuple[TensorType, ...]:
        for name, value in (("ratio", ratio), ("training_mode", training_mode)):
            if value is not None and value.size != 1:
                self.fail(f"{name} to be a scalar", list(value.shape))
        if training_mode is not None and training_mode.dtype is not DType.BOOL:
            self.fail("training_mode of bool", training_mode.dtype.type_string)
        return super().infer(x)

    def evaluate(self, x: Array, ratio: Array | None = None, training_mode: Array | None = None) -> tuple[Array, ...]:
        share = 0.5 if ratio is None else float(ratio.reshape(()))
        if training_mode is None or not training_mode.any() or share == 0:
            return super().evaluate(x)
        if not 0 <= share < 1:
            self.fail("ratio in [0, 1)", share)
        mask = current().random.generator(self, self.seed).uniform(0, 1, x.shape) >= share
        return (np.asarray(mask * x / (1 - share)).astype(x.dtype), np.asarray(mask))

    def _inference(self, *inputs: Any) -> bool:
        """Whether it is known that nothing is dropped."""
        _, ratio, training_mode = (*inputs, None, None)[:3]
        if training_mode is None or (training_mode.is_known and not training_mode.value().any()):
            return True
        return ratio is not None and ratio.is_known and not ratio.value().any()

    def alias(self, x: TensorType, *rest: Any) -> int | None:
        return super().alias(x) if self._inference(x, *rest) else None

    def lower(self, target: Target, x: TensorType, *rest: Any) -> tuple[Dispatch, ...]:
        if not self._inference(x, *rest):
            raise Unsupported("training with dropout draws random numbers on the host")
        return super().lower(target, x)

"""NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss. Source: ONNX operators of these names."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from pyruntime import errors
from pyruntime.ir import DType, TensorType, ValueType
from pyruntime.ops.base import LATEST, op
from pyruntime.ops.decomposed import Decomposed, Expansion


@op("NegativeLogLikelihoodLoss", opsets=range(12, LATEST + 1))
class NegativeLogLikelihoodLoss(Decomposed):
    """l[n, d] = -p[n, t, d]·w[t], t = target[n, d]; 0 where t is `ignore_index`. w defaults to 1.

    p: log-probabilities [N, C, d...]; target: int32 or int64 [N, d...]; w: [C]. `reduction` 'none' returns l, 'sum' its
    sum, 'mean' the sum divided by the total weight of the targets that are not ignored.
    """

    ignore_index: int | None = None
    reduction: Annotated[str, "none", "sum", "mean"] = "mean"

    def expand(
        self, body: Expansion, x: TensorType, target: TensorType, weight: TensorType | None = None
    ) -> tuple[TensorType | None, ...]:
        self._check(x, target, weight)
        wide = x.dtype if x.dtype is DType.DOUBLE else DType.FLOAT
        zero, label = body.number(0, wide), body.cast(target, DType.INT64)
        low, high = body.number(0, DType.INT64), body.ints(x.shape[1])
        inside = body("And", body("GreaterOrEqual", label, low), body("Less", label, high))
        place = body("Where", inside, label, low)
        chosen = body("GatherElements", x, body("Unsqueeze", place, body.ints(1)), axis=1)
        loss = body("Neg", body.cast(body("Squeeze", chosen, body.ints(1)), wide))
        share = body("Where", inside, body.number(1, wide), body.number(np.nan, wide))
        if weight is not None:
            share = body("Mul", share, body.cast(body("Gather", weight, place), wide))
        loss = body("Mul", loss, share)
        if self.ignore_index is not None:
            ignored = body("Equal", label, body.number(self.ignore_index, DType.INT64))
            share, loss = (body("Where", ignored, zero, y) for y in (share, loss))
        if self.reduction != "none":
            loss, share = (body("ReduceSum", y, keepdims=0) for y in (loss, share))
        return (body.cast(body("Div", loss, share) if self.reduction == "mean" else loss, x.dtype),)

    def _check(self, x: TensorType, target: TensorType, weight: TensorType | None) -> None:
        if x.rank < 2 or not x.dtype.is_float:
            self.fail("a float tensor [N, C, ...]", x)
        if target.dtype not in (DType.INT32, DType.INT64) or target.shape != (x.shape[0], *x.shape[2:]):
            self.fail(f"int32 or int64 targets {[x.shape[0], *x.shape[2:]]}", target)
        if weight is not None and (weight.shape != (x.shape[1],) or weight.dtype is not x.dtype):
            self.fail(f"weights {x.with_shape(x.shape[1])}", weight)

    def evaluate_typed(self, types: tuple[ValueType | None, ...], *inputs: Any) -> tuple[Any, ...]:
        classes, target = inputs[0].shape[1], inputs[1]
        outside = target[(target != self.ignore_index) & ((target < 0) | (target >= classes))]
        if outside.size:
            raise errors.RuntimeException(
                f"{self.op_type}: expected targets in [0, {classes}) or ignore_index, got {int(outside[0])}"
            )
        return super().evaluate_typed(types, *inputs)


@op("SoftmaxCrossEntropyLoss", opsets=range(12, LATEST + 1))
class SoftmaxCrossEntropyLoss(Decomposed):
    """Loss of log_softmax(scores), which is output 1. Both are computed in float32 (float64 inputs: float64)."""

    ignore_index: int | None = None
    reduction: Annotated[str, "none", "sum", "mean"] = "mean"

    def expand(
        self, body: Expansion, scores: TensorType, labels: TensorType, weights: TensorType | None = None
    ) -> tuple[TensorType | None, ...]:
        if scores.rank < 2 or not scores.dtype.is_float or (weights and weights.dtype is not scores.dtype):
            self.fail("float scores [N, C, ...], and weights of their type", f"{scores} and {weights}")
        wide = scores.dtype if scores.dtype is DType.DOUBLE else DType.FLOAT
        logs = body("LogSoftmax", body.cast(scores, wide), axis=1)
        form = {"ignore_index": self.ignore_index, "reduction": self.reduction}
        loss = body("NegativeLogLikelihoodLoss", logs, labels, weights and body.cast(weights, wide), **form)
        return body.cast(loss, scores.dtype), body.cast(logs, scores.dtype)

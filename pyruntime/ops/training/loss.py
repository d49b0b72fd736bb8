"""NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss. Source: ONNX operators of these names."""

from __future__ import annotations

import math

import numpy as np

from pyruntime import errors
from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Source, Target, gather_map, inp, out, scratch
from pyruntime.kernels.rows.reduce import Fold, reduction
from pyruntime.ops.base import LATEST, Op, op, refuse_float64
from pyruntime.ops.decomposed import Decomposed, Expansion

_FOLDS = {
    name: Fold(
        f"loss_{name}",
        "vec2<f32>",
        "vec2<f32>(0.0, 0.0)",
        "bitcast<vec2<f32>>(x)",
        "a + b",
        finish,
        state=DType.UINT64,
        save="bitcast<vec2<u32>>(a)",
        restore="bitcast<vec2<f32>>(x)",
    )
    for name, finish in (("mean", "a.x / a.y"), ("sum", "a.x"))
}
"""Reductions of (loss, weight) pairs, which are stored as 64-bit integers."""


@op("NegativeLogLikelihoodLoss", opsets=range(12, LATEST + 1))
class NegativeLogLikelihoodLoss(Op):
    """l[n, d] = -p[n, t, d]·w[t], t = target[n, d]; 0 where t is `ignore_index`. w defaults to 1.

    p: log-probabilities [N, C, d...]; target: int32 or int64 [N, d...]; w: [C]. `reduction` 'none' returns l, 'sum' its
    sum, 'mean' the sum divided by the total weight of the targets that are not ignored.
    """

    ignore_index: int | None = None
    reduction: str = "mean"

    def infer(self, x: TensorType, target: TensorType, weight: TensorType | None = None) -> tuple[TensorType, ...]:
        if x.rank < 2 or not x.dtype.is_float:
            self.fail("a float tensor [N, C, ...]", x)
        if target.dtype not in (DType.INT32, DType.INT64) or target.shape != (x.shape[0], *x.shape[2:]):
            self.fail(f"int32 or int64 targets {[x.shape[0], *x.shape[2:]]}", target)
        if weight is not None and (weight.shape != (x.shape[1],) or weight.dtype is not x.dtype):
            self.fail(f"weights {x.with_shape(x.shape[1])}", weight)
        if self.reduction not in ("none", "sum", "mean"):
            self.fail("reduction none, sum or mean", self.reduction)
        return (TensorType(x.dtype, target.shape if self.reduction == "none" else ()),)

    def evaluate(self, p: Array, target: Array, weight: Array | None = None) -> tuple[Array, ...]:
        p = p.astype(np.float32) if p.dtype == np.float16 else p
        classes = p.shape[1]
        ignored = target == self.ignore_index if self.ignore_index is not None else np.zeros(target.shape, bool)
        outside = target[~ignored & ((target < 0) | (target >= classes))]
        if outside.size:
            raise errors.RuntimeException(
                f"{self.op_type}: expected targets in [0, {classes}) or ignore_index, got {int(outside[0])}"
            )
        label = np.where(ignored, 0, target)
        weights = np.ones(classes, p.dtype) if weight is None else weight.astype(p.dtype)
        share = np.where(ignored, 0, weights[label])
        chosen = np.take_along_axis(p, np.expand_dims(label, 1), axis=1)[:, 0] if p.size else np.zeros(label.shape)
        loss = np.where(ignored, 0, -chosen * share)
        if self.reduction == "none":
            return (loss,)
        total = loss.sum()
        return (np.asarray(total / share.sum() if self.reduction == "mean" else total),)

    def lower(
        self, target: Target, p: TensorType, label: TensorType, weight: TensorType | None = None
    ) -> tuple[Dispatch, ...]:
        """Return the dispatches. On the GPU, a target outside [0, C) gives NaN."""
        refuse_float64(p)
        none = self.reduction == "none"
        pairs = scratch(DType.UINT64, *label.shape)
        ignored = (self.ignore_index or 0) & (2**64 - 1)
        values = {
            "classes": p.shape[1],
            "inner": math.prod(p.shape[2:]),
            "ignored_low": ignored & 0xFFFFFFFF,
            "ignored_high": ignored >> 32,
        }
        sources = [Source("p", inp(0, p)), Source("label", inp(1, label))]
        sources += [Source("weight", inp(2, weight))] if weight is not None else []
        wide = "load_label(i)" if label.dtype.is_wide else "i64_of_i32(load_label(i))"
        skip = "label.x == params.ignored_low && label.y == params.ignored_high"
        code = f"""let label = {wide};
  var pair = vec2<f32>(0.0, 0.0);
  if (!({skip if self.ignore_index is not None else "false"})) {{
    let inside = label.y == 0u && label.x < params.classes;
    let t = select(0u, label.x, inside);
    let n = i / params.inner;
    pair.y = {"load_weight(t)" if weight is not None else "1.0"};
    pair.x = -load_p((n * params.classes + t) * params.inner + i - n * params.inner) * pair.y;
    if (!inside) {{ pair.x = f32_bits(0x7fc00000u, i); }}
  }}
  return {"pair.x" if none else "bitcast<vec2<u32>>(pair)"};"""
        name = f"loss{'_ignore' if self.ignore_index is not None else ''}"
        into = out(0, TensorType(p.dtype, label.shape)) if none else pairs
        picked = gather_map(target, name, into, sources, code, values)
        if none:
            return (picked,)
        end = out(0, TensorType(p.dtype, ()))
        return (picked, *reduction(target, _FOLDS[self.reduction], end, pairs, range(label.rank)))


@op("SoftmaxCrossEntropyLoss", opsets=range(12, LATEST + 1))
class SoftmaxCrossEntropyLoss(Decomposed):
    """Loss of log_softmax(scores), which is output 1. Both are computed in float32 (float64 inputs: float64)."""

    ignore_index: int | None = None
    reduction: str = "mean"

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

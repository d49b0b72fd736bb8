"""LinearClassifier, LinearRegressor: s = x·Cᵀ + b. Source: ONNX operators of these names in ai.onnx.ml."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from pyruntime.ir import Array, DType, Floats, TensorType
from pyruntime.ops.base import Op, op
from pyruntime.ops.ml.shared import (
    ALL,
    Labels,
    as_float,
    binary_scores,
    class_labels,
    matrix,
    transformed_alone,
)


def _scores(x: Array, coefficients: Sequence[float], count: int, intercepts: Sequence[float] | None) -> Array:
    """Return `count` scores for each row. Surplus coefficients are ignored, as in onnxruntime."""
    rows = as_float(x)
    weights = np.asarray(coefficients, rows.dtype)[: count * rows.shape[1]].reshape(count, -1)
    scores = rows @ weights.T
    return np.asarray(scores + np.array(intercepts, rows.dtype) if intercepts else scores)


@op("LinearClassifier", domain="ai.onnx.ml", opsets=ALL)
class LinearClassifier(Op):
    """x: [N, F]; y: label of the largest score, [N]; z: float32 scores after `post_transform`, [N, E].

    The number of scores is that of the intercepts, or follows from the coefficients. A single score s of two labels
    (default 0 and 1) belongs to the second, which is selected where s > 0; z is then (1 - s, s), with LOGISTIC the
    sigmoid of (-s, s), with PROBIT the quantiles of (1 - s, s). Without label attributes z is s, [N, 1], and only
    PROBIT applies. `multi_class` has no effect.
    """

    coefficients: Floats
    classlabels_ints: tuple[int, ...] | None = None
    classlabels_strings: tuple[str, ...] | None = None
    intercepts: tuple[float, ...] | None = None
    multi_class: int = 0
    post_transform: Annotated[str, "NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"] = "NONE"

    @property
    def _named(self) -> int:
        return len(self.classlabels_ints or self.classlabels_strings or ())

    def _labels(self, features: int) -> tuple[Labels, int]:
        count = len(self.intercepts or ())
        if not count or (count == 1 and self._named > 2):  # a single intercept applies to all classes
            count = len(self.coefficients) // features if features else 0
        if not count or len(self.coefficients) < count * features:
            self.fail(f"{max(count, 1)} times {features} coefficients or more", len(self.coefficients))
        last = None if count == 1 else count  # surplus labels have no score
        integers, strings = (self.classlabels_ints or ())[:last], (self.classlabels_strings or ())[:last]
        return class_labels(self, integers, strings, count), count

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        rows, features = matrix(self, x)
        labels, count = self._labels(features)
        return TensorType(labels.dtype, (rows,)), TensorType(DType.FLOAT, (rows, len(labels) if self._named else count))

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        labels, count = self._labels(x.shape[-1])
        scores = _scores(x, self.coefficients, count, self.intercepts)
        if count > 1 or len(labels) == 1:
            return labels[scores.argmax(axis=1)], transformed_alone(scores, self.post_transform)
        chosen = labels[(scores[:, 0] > 0).astype(np.intp)]
        if not self._named:
            return chosen, transformed_alone(scores, self.post_transform)
        kind = self.post_transform if self.post_transform in ("LOGISTIC", "PROBIT") else "NONE"
        return chosen, binary_scores(scores, kind, probability=True)


@op("LinearRegressor", domain="ai.onnx.ml", opsets=ALL)
class LinearRegressor(Op):
    """x: [N, F]; coefficients: `targets` rows of F; y: float32 [N, targets] after `post_transform`.

    Intercepts are used only if there is one per target. For a single target only PROBIT applies.
    """

    coefficients: Floats | None = None
    intercepts: tuple[float, ...] | None = None
    post_transform: Annotated[str, "NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"] = "NONE"
    targets: int = 1

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        rows, features = matrix(self, x)
        if self.targets < 1 or len(self.coefficients or ()) < self.targets * features:
            self.fail(f"{self.targets} times {features} coefficients or more", len(self.coefficients or ()))
        return (TensorType(DType.FLOAT, (rows, self.targets)),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        intercepts = self.intercepts if len(self.intercepts or ()) == self.targets else None
        scores = _scores(x, self.coefficients or (), self.targets, intercepts)
        return (transformed_alone(scores, self.post_transform),)

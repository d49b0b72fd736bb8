"""LinearClassifier, LinearRegressor: s = x·Cᵀ + b. Source: ONNX operators of these names in ai.onnx.ml."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.ops._ml import (
    ALL,
    Labels,
    as_float,
    binary_scores,
    check_transform,
    class_labels,
    matrix,
    transformed,
)
from pyruntime.ops.base import Op, op


def _scores(op: Op, x: Array, coefficients: tuple[float, ...], intercepts: tuple[float, ...] | None) -> Array:
    rows = as_float(x)
    weights = np.array(coefficients, rows.dtype).reshape(-1, rows.shape[1])
    scores = rows @ weights.T
    return np.asarray(scores + np.array(intercepts, rows.dtype) if intercepts else scores)


def _outputs(op: Op, features: int, coefficients: tuple[float, ...], intercepts: tuple[float, ...] | None) -> int:
    """How many scores there are. Raises InvalidGraph where coefficients or intercepts do not fit."""
    count, rest = divmod(len(coefficients), features) if features else (0, 1)
    if rest or not count:
        op.fail(f"a multiple of {features} coefficients, the number of features", len(coefficients))
    if intercepts and len(intercepts) not in (1, count):
        op.fail(f"{count} intercepts", len(intercepts))
    return count


@op("LinearClassifier", domain="ai.onnx.ml", opsets=ALL)
class LinearClassifier(Op):
    """x: [N, F]; y: the label of the greatest score, [N]; z: float32 scores after `post_transform`, [N, E].

    With one row of coefficients and two labels the second is chosen where s > 0, and the scores are (1 - s, s), or
    the transform of (-s, s). `multi_class` has no effect.
    """

    coefficients: tuple[float, ...]
    classlabels_ints: tuple[int, ...] | None = None
    classlabels_strings: tuple[str, ...] | None = None
    intercepts: tuple[float, ...] | None = None
    multi_class: int = 0
    post_transform: str = "NONE"

    def _labels(self, features: int) -> tuple[Labels, int]:
        count = _outputs(self, features, self.coefficients, self.intercepts)
        return class_labels(self, self.classlabels_ints, self.classlabels_strings, count), count

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        check_transform(self, self.post_transform)
        rows, features = matrix(self, x)
        labels, _ = self._labels(features)
        return TensorType(labels.dtype, (rows,)), TensorType(DType.FLOAT, (rows, len(labels)))

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        labels, count = self._labels(x.shape[-1])
        scores = _scores(self, x, self.coefficients, self.intercepts)
        if count == 1 and len(labels) == 2:
            chosen = (scores[:, 0] > 0).astype(np.int64)
            return labels[chosen], binary_scores(scores, self.post_transform, probability=True)
        return labels[scores.argmax(axis=1)], transformed(scores, self.post_transform)


@op("LinearRegressor", domain="ai.onnx.ml", opsets=ALL)
class LinearRegressor(Op):
    """x: [N, F]; coefficients: `targets` rows of F; y: float32 [N, targets] after `post_transform`."""

    coefficients: tuple[float, ...] | None = None
    intercepts: tuple[float, ...] | None = None
    post_transform: str = "NONE"
    targets: int = 1

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        check_transform(self, self.post_transform)
        rows, features = matrix(self, x)
        if _outputs(self, features, self.coefficients or (), self.intercepts) != self.targets:
            self.fail(f"{self.targets} times {features} coefficients", len(self.coefficients or ()))
        return (TensorType(DType.FLOAT, (rows, self.targets)),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (transformed(_scores(self, x, self.coefficients or (), self.intercepts), self.post_transform),)

"""SVMClassifier, SVMRegressor: support vector machines. Source: ONNX operators ai.onnx.ml.SVMClassifier, SVMRegressor.

Kernels of x and a support vector v, with (γ, c, d) = kernel_params: LINEAR x·v, POLY (γ x·v + c)^d, RBF exp(-γ |x -
v|²), SIGMOID tanh(γ x·v + c).
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from pyruntime.ir import Array, DType, Floats, TensorType
from pyruntime.ops.base import Op, attributes, op
from pyruntime.ops.ml.shared import (
    ALL,
    Labels,
    as_float,
    binary_scores,
    class_labels,
    matrix,
    transformed,
    transformed_alone,
)


@attributes
class _SVM(Op):
    """Base of SVMClassifier and SVMRegressor. Without support vectors, the coefficients define a linear function."""

    coefficients: Floats | None = None
    kernel_params: tuple[float, ...] | None = None
    kernel_type: Annotated[str, "LINEAR", "POLY", "RBF", "SIGMOID"] = "LINEAR"
    post_transform: Annotated[str, "NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"] = "NONE"
    rho: tuple[float, ...] | None = None
    support_vectors: Floats | None = None

    def _check(self, vectors: int, features: int) -> None:
        if len(self.kernel_params or (0, 0, 0)) != 3:
            self.fail("three kernel_params", self.kernel_params)
        if len(self.support_vectors or ()) < vectors * features:
            self.fail(f"{vectors} support vectors of {features} numbers", f"{len(self.support_vectors or ())} numbers")
        if not self.coefficients or not self.rho:
            self.fail("coefficients and rho", "none")

    def _kernel(self, x: Array, vectors: int) -> Array:
        """Return the kernel of each row of x and each support vector, [N, vectors]."""
        v = np.asarray(self.support_vectors, x.dtype)[: vectors * x.shape[1]].reshape(vectors, -1)
        gamma, offset, degree = (x.dtype.type(p) for p in self.kernel_params or (0, 0, 0))
        if self.kernel_type == "RBF":
            # Expanding the square would lose digits by cancellation.
            distance = np.empty((len(x), vectors), x.dtype)
            for n, row in enumerate(x):
                distance[n] = np.square(v - row).sum(axis=1)
            return np.asarray(np.exp(-gamma * distance))
        product = x @ v.T
        if self.kernel_type == "POLY":
            return np.asarray((gamma * product + offset) ** degree)
        return np.asarray(np.tanh(gamma * product + offset)) if self.kernel_type == "SIGMOID" else product


@op("SVMRegressor", domain="ai.onnx.ml", opsets=ALL)
class SVMRegressor(_SVM):
    """y = Σ_j c_j·k(x, v_j) + rho; with `one_class`, 1 if that is positive, else -1.

    x: [N, F]; y: float32 [N, 1]. `post_transform` has no effect, as in onnxruntime.
    """

    n_supports: int = 0
    one_class: int = 0

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        rows, features = matrix(self, x)
        self._check(self.n_supports, features)
        if len(self.coefficients or ()) < (self.n_supports or features):
            self.fail(f"{self.n_supports or features} coefficients or more", len(self.coefficients or ()))
        return (TensorType(DType.FLOAT, (rows, 1)),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        rows = as_float(x)
        terms = self._kernel(rows, self.n_supports) if self.n_supports else rows
        weights = np.asarray(self.coefficients, rows.dtype)[: terms.shape[1], None]
        score = terms @ weights + rows.dtype.type((self.rho or (0.0,))[0])
        if self.one_class:
            return (np.where(score > 0, 1, -1).astype(np.float32),)
        return (score.astype(np.float32),)


@op("SVMClassifier", domain="ai.onnx.ml", opsets=ALL)
class SVMClassifier(_SVM):
    """One decision for each pair of classes i < j: s_ij = Σ_v c_v·k(x, v) + rho_ij over the vectors of both classes.

    s > 0 is a vote for i, else for j; y is the label with the most votes (ties: the first). z, float32, has the
    decisions after `post_transform`, [N, E(E-1)/2]; for two classes (-s, s), or (1 - s, s) with a softmax; with prob_a
    and prob_b the class probabilities [N, E]. Without support vectors there is a linear function per class, and y is
    the largest. x: [N, F]. Source of the coefficient layout and the probabilities: LIBSVM (Chang and Lin, 2011).
    """

    classlabels_ints: tuple[int, ...] | None = None
    classlabels_strings: tuple[str, ...] | None = None
    prob_a: tuple[float, ...] | None = None
    prob_b: tuple[float, ...] | None = None
    vectors_per_class: tuple[int, ...] | None = None

    def _labels(self) -> Labels:
        classes = len(self.classlabels_ints or self.classlabels_strings or ()) or len(self.vectors_per_class or (0,))
        return class_labels(self, self.classlabels_ints, self.classlabels_strings, classes)

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        rows, features = matrix(self, x)
        labels = self._labels()
        classes, vectors = len(labels), sum(self.vectors_per_class or ())
        pairs = classes * (classes - 1) // 2
        if vectors and not pairs:
            self.fail("two classes or more", classes)
        self._check(vectors, features)
        expected = (classes - 1) * vectors if vectors else classes * features
        if len(self.coefficients or ()) < expected:
            self.fail(f"{expected} coefficients or more", len(self.coefficients or ()))
        if vectors and len(self.vectors_per_class or ()) != classes:
            self.fail(f"vectors_per_class of {classes} classes", list(self.vectors_per_class or ()))
        if vectors and len(self.rho or ()) < pairs:
            self.fail(f"{pairs} numbers as rho or more", len(self.rho or ()))
        if len(self.prob_a or ()) != len(self.prob_b or ()) or len(self.prob_a or ()) not in (0, pairs):
            self.fail(f"prob_a and prob_b of {pairs} numbers, or neither", f"{self.prob_a} and {self.prob_b}")
        scores = classes if not vectors or self.prob_a or pairs == 1 else pairs
        return TensorType(labels.dtype, (rows,)), TensorType(DType.FLOAT, (rows, scores))

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        rows, labels = as_float(x), self._labels()
        if not sum(self.vectors_per_class or ()):
            features = rows.shape[1]
            weights = np.asarray(self.coefficients, rows.dtype)[: len(labels) * features].reshape(-1, features)
            scores = rows @ weights.T + rows.dtype.type((self.rho or (0.0,))[0])
            return labels[scores.argmax(axis=1)], transformed_alone(scores, self.post_transform).astype(np.float32)
        decisions = self._decisions(rows, len(labels))
        chosen = labels[_votes(decisions, len(labels)).argmax(axis=1)]
        if self.prob_a:
            scores = transformed(self._probabilities(decisions, len(labels)), self.post_transform)
        elif len(labels) == 2:
            softmax = self.post_transform.startswith("SOFTMAX")
            scores = binary_scores(decisions, "NONE" if softmax else self.post_transform, probability=softmax)
        else:
            scores = transformed(decisions, self.post_transform)
        return chosen, scores.astype(np.float32)

    def _decisions(self, x: Array, classes: int) -> Array:
        """Return s_ij for i < j in lexicographic order, [N, pairs].

        The coefficients of class i's vectors against class j are in row j - 1 if i < j, else in row j.
        """
        counts = self.vectors_per_class or ()
        kernel = self._kernel(x, sum(counts))
        weights = np.asarray(self.coefficients, x.dtype)[: (classes - 1) * sum(counts)].reshape(classes - 1, -1)
        ends = np.cumsum((0, *counts))
        columns = []
        for i in range(classes):
            for j in range(i + 1, classes):
                of_i, of_j = slice(ends[i], ends[i + 1]), slice(ends[j], ends[j + 1])
                columns.append(kernel[:, of_i] @ weights[j - 1, of_i] + kernel[:, of_j] @ weights[i, of_j])
        return np.asarray(np.stack(columns, axis=1) + np.array(self.rho, x.dtype)[: len(columns)])

    def _probabilities(self, decisions: Array, classes: int) -> Array:
        """Return class probabilities, given Platt's sigmoids 1 / (1 + exp(a·s + b)) of the pairs."""
        a, b = np.array(self.prob_a, decisions.dtype), np.array(self.prob_b, decisions.dtype)
        of_pairs = np.clip(transformed(-(decisions * a + b), "LOGISTIC"), 1e-7, 1 - 1e-7)
        pairwise = np.zeros((len(decisions), classes, classes), decisions.dtype)
        i, j = np.triu_indices(classes, 1)
        pairwise[:, i, j] = of_pairs
        pairwise[:, j, i] = 1 - of_pairs
        return coupled(pairwise)


def _votes(decisions: Array, classes: int) -> Array:
    """Return the number of pairs that each class wins, [N, classes]."""
    i, j = np.triu_indices(classes, 1)
    votes = np.zeros((len(decisions), classes), np.int64)
    np.add.at(votes.T, i, (decisions > 0).T)
    np.add.at(votes.T, j, (decisions <= 0).T)
    return votes


def coupled(pairwise: Array) -> Array:
    """Return class probabilities p [N, k] for pairwise ones r [N, k, k], minimizing Σ_ij (r_ji·p_i - r_ij·p_j)².

    Uses LIBSVM's iteration, which stops at |Qp - pᵀQp| < 0.005 / k. Source: Wu, Lin, Weng, Probability Estimates for
    Multi-class Classification by Pairwise Coupling, 2004.
    """
    rows, k, _ = pairwise.shape
    q = -np.swapaxes(pairwise, 1, 2) * pairwise
    q[:, range(k), range(k)] = np.square(pairwise).sum(axis=1)
    p = np.full((rows, k), 1 / k, pairwise.dtype)
    running = np.arange(rows)
    for _ in range(max(100, k)):
        qp = np.einsum("nij,nj->ni", q[running], p[running])
        pqp = (p[running] * qp).sum(axis=1)
        going = np.abs(qp - pqp[:, None]).max(axis=1, initial=0) >= 0.005 / k
        running, qp, pqp = running[going], qp[going], pqp[going]
        if not running.size:
            break
        for t in range(k):
            row = q[running, t]
            step = (pqp - qp[:, t]) / row[:, t]
            pqp = (pqp + step * (step * row[:, t] + 2 * qp[:, t])) / (1 + step) ** 2
            p[running, t] += step
            p[running] /= (1 + step)[:, None]
            qp = (qp + step[:, None] * row) / (1 + step)[:, None]
    return p

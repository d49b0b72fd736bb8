"""Number types, class labels and post-transforms shared by the operators of ai.onnx.ml.

Source: ONNX operators of ai.onnx.ml, attributes `classlabels_*` and `post_transform`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.ops.base import LATEST_ML, Op

__all__ = [
    "ALL",
    "NUMBERS",
    "Labels",
    "as_float",
    "binary_scores",
    "class_labels",
    "matrix",
    "numbers",
    "transformed",
    "transformed_alone",
]

ALL = range(1, LATEST_ML + 1)
"""All opsets of the domain."""

NUMBERS = (DType.FLOAT, DType.DOUBLE, DType.INT64, DType.INT32)

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def numbers(op: Op, x: TensorType) -> None:
    """Raise InvalidGraph unless x is float, double, int64 or int32."""
    if x.dtype not in NUMBERS:
        op.fail(" or ".join(d.type_string for d in NUMBERS), x)


def matrix(op: Op, x: TensorType) -> tuple[int, int]:
    """Return (N, F) of a number tensor [N, F] or [F] (one row). Raises InvalidGraph for others."""
    numbers(op, x)
    if x.rank not in (1, 2):
        op.fail("a tensor [N, F] or [F]", x)
    return (1, x.shape[0]) if x.rank == 1 else (x.shape[0], x.shape[1])


def as_float(x: Array) -> Array:
    """Return x with at least two dimensions, converted to float32 unless it is float64."""
    return np.atleast_2d(x if x.dtype == np.float64 else x.astype(np.float32))


class Labels:
    """Class labels, strings or integers."""

    def __init__(self, values: Sequence[int] | Sequence[str], dtype: DType) -> None:
        self.values = np.array(values, object if dtype is DType.STRING else np.int64)
        self.dtype = dtype

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: Array) -> Array:
        """Return the labels of class indices."""
        return np.asarray(self.values[index])


def class_labels(op: Op, integers: Sequence[int] | None, strings: Sequence[str] | None, classes: int) -> Labels:
    """Return the labels of a classifier with `classes` scores; default 0, 1, ...

    Raises:
        InvalidGraph: both kinds are given, or their number does not match (a single score may have two labels).
    """
    if integers and strings:
        op.fail("integer or string labels", "both")
    found = Labels(strings, DType.STRING) if strings else Labels(integers or range(max(classes, 2)), DType.INT64)
    if len(found) != classes and not (classes == 1 and len(found) == 2):
        op.fail(f"{classes} class labels", len(found))
    return found


def transformed(scores: Array, kind: str) -> Array:
    """Apply `post_transform` to scores [N, E]; softmax is over E.

    SOFTMAX_ZERO excludes scores within 1e-7 of zero from the softmax; a row of zeros becomes 0.5.
    """
    if kind == "LOGISTIC":
        small = np.exp(-np.abs(scores))
        return np.asarray(np.where(scores >= 0, 1, small) / (1 + small))
    if kind == "PROBIT":
        return _probit(scores)
    if kind not in ("SOFTMAX", "SOFTMAX_ZERO") or not scores.size:
        return scores
    top = scores.max(axis=1, keepdims=True)
    weights = np.exp(scores - top)
    if kind == "SOFTMAX_ZERO":
        weights = np.where(np.abs(scores) > 1e-7, weights, scores * np.exp(-top))
    total = weights.sum(axis=1, keepdims=True)
    return np.asarray(np.where(total == 0, 0.5, weights / np.where(total == 0, 1, total)))


def transformed_alone(scores: Array, kind: str) -> Array:
    """Apply `post_transform`. As in onnxruntime, only PROBIT applies to a single score per row ([N, 1])."""
    return scores if scores.shape[1] == 1 and kind != "PROBIT" else transformed(scores, kind)


def _probit(p: Array) -> Array:
    """Return quantiles of the standard normal distribution, float32: -inf at 0, inf at 1, NaN outside [0, 1].

    Uses Winitzki's approximation of the inverse error function, as ONNX's reference and onnxruntime do.
    """
    number = np.float32
    x = 2 * p.astype(number) - 1
    with np.errstate(divide="ignore", invalid="ignore"):
        log = np.log((1 - x) * (1 + x))
        v = number(2 / (np.pi * 0.147)) + number(0.5) * log
        root = np.sqrt(np.sqrt(v * v - log / number(0.147)) - v)
    return np.asarray(np.copysign(number(np.sqrt(2)) * root, x))


def binary_scores(score: Array, kind: str, probability: bool) -> Array:
    """Return the transformed scores [N, 2] of two classes, given the second one's score [N, 1].

    The untransformed scores are (1 - s, s) with `probability`, else (-s, s). In any case, LOGISTIC and the softmaxes
    apply to (-s, s), and PROBIT to (1 - s, s).
    """
    if kind in ("LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"):
        return transformed(np.concatenate([-score, score], axis=1), kind)
    other = 1 - score if probability or kind == "PROBIT" else -score
    return transformed(np.concatenate([other, score], axis=1), kind)

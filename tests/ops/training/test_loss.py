"""NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyruntime import errors
from pyruntime.ir import Array
from tests.harness import make_op, run_op
from tests.oracle import check_against_ort, node_of

FAMILY = {"NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"}


def scores_of(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def labels_of(classes: int, *shape: int, dtype: Any = np.int64) -> Array:
    return np.random.default_rng(1).integers(0, classes, shape).astype(dtype)


@pytest.mark.parametrize("op", sorted(FAMILY))
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("inner", [(), (4,), (2, 3)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ignore", [None, 2])
def test_loss__reductions_weights_ignored__as_onnxruntime(
    op: str, reduction: str, inner: tuple[int, ...], weighted: bool, ignore: int | None
) -> None:
    inputs: list[Array | None] = [scores_of(5, 4, *inner), labels_of(4, 5, *inner, dtype=np.int32)]
    inputs += [np.array([0.5, 1, 2, 3], np.float32)] if weighted else []
    attributes: dict[str, Any] = {} if ignore is None else {"ignore_index": ignore}
    check_against_ort(op, inputs, opset=13, reduction=reduction, **attributes)


def test_loss__label_outside__runtime_exception() -> None:
    inputs: list[Array | None] = [scores_of(2, 3), np.array([0, 3])]
    with pytest.raises(errors.RuntimeException, match=r"targets in \[0, 3\) or ignore_index, got 3"):
        run_op(make_op(node_of("SoftmaxCrossEntropyLoss", inputs), {"": 13}), inputs)


def test_loss__ignored_index_outside_the_classes__left_out() -> None:
    inputs: list[Array | None] = [scores_of(3, 3), np.array([0, -7, 2])]
    op = make_op(node_of("NegativeLogLikelihoodLoss", inputs, ignore_index=-7), {"": 13})
    x = scores_of(3, 3)
    np.testing.assert_allclose(run_op(op, inputs)[0], -(x[0, 0] + x[2, 2]) / 2, rtol=1e-6)


def test_loss__labels_of_another_shape__invalid_graph() -> None:
    inputs: list[Array | None] = [scores_of(2, 3, 4), labels_of(3, 2, 5)]
    with pytest.raises(errors.InvalidGraph, match=r"targets \[2, 4\]"):
        run_op(make_op(node_of("NegativeLogLikelihoodLoss", inputs), {"": 13}), inputs)

"""NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss on the GPU."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from e2e.harness.gpu import Gpu
from pyruntime.ir import Array
from tests.harness import make_op, run_op
from tests.ops.training.test_loss import FAMILY, labels_of, scores_of
from tests.oracle import node_of


@pytest.mark.parametrize("op", sorted(FAMILY))
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize(("dtype", "rtol"), [(np.float32, 1e-5), (np.float16, 2e-3), (ml_dtypes.bfloat16, 2e-2)])
@pytest.mark.parametrize("ignore", [None, 2, -5])
def test_loss__types_and_ignored_labels__as_the_host(
    gpu: Gpu, op: str, reduction: str, dtype: Any, rtol: float, ignore: int | None
) -> None:
    labels = labels_of(4, 37, 5)
    if ignore is not None:
        labels[::7] = ignore
    weights = np.array([0.5, 1, 2, 3], dtype)
    inputs: list[Array | None] = [scores_of(37, 4, 5).astype(dtype), labels, weights]
    attributes: dict[str, Any] = {} if ignore is None else {"ignore_index": ignore}
    made = make_op(node_of(op, inputs, 1, reduction=reduction, **attributes), {"": 22})
    np.testing.assert_allclose(run_op(made, inputs, gpu)[0], run_op(made, inputs)[0], rtol=rtol, atol=rtol)


def test_loss__label_outside__nan(gpu: Gpu) -> None:
    inputs: list[Array | None] = [scores_of(3, 3), np.array([0, 3, 2])]
    op = make_op(node_of("SoftmaxCrossEntropyLoss", inputs, reduction="none"), {"": 13})
    assert np.isnan(run_op(op, inputs, gpu)[0]).tolist() == [False, True, False]


def test_loss__many_samples__mean_as_the_host(gpu: Gpu) -> None:
    inputs: list[Array | None] = [scores_of(40_000, 3), labels_of(3, 40_000)]
    op = make_op(node_of("SoftmaxCrossEntropyLoss", inputs), {"": 13})
    np.testing.assert_allclose(run_op(op, inputs, gpu)[0], run_op(op, inputs)[0], rtol=1e-5)

"""NonMaxSuppression on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyruntime.errors import InvalidGraph
from pyruntime.ir import Array
from tests.harness import make_op, run_op
from tests.oracle import check_against_ort, node_of


def boxes_of(batch: int, count: int) -> Array:
    return np.random.default_rng(count).random((batch, count, 4)).astype(np.float32)


def scores_of(batch: int, classes: int, count: int) -> Array:
    # Few different scores: ties go to the lower index.
    return np.random.default_rng(1).integers(0, 7, (batch, classes, count)).astype(np.float32) / 8


def one(number: float, dtype: Any = np.float32) -> Array:
    return np.array([number], dtype)


@pytest.mark.parametrize("center", [0, 1])
@pytest.mark.parametrize("overlap", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("least", [None, 0.4])
def test_non_max_suppression__random_boxes_and_ties__as_onnxruntime(
    center: int, overlap: float, least: float | None
) -> None:
    inputs = [boxes_of(2, 40), scores_of(2, 3, 40), one(9, np.int64), one(overlap)]
    inputs += [] if least is None else [one(least)]
    check_against_ort("NonMaxSuppression", inputs, opset=11, center_point_box=center)


def test_non_max_suppression__no_limit_given__nothing_chosen() -> None:
    inputs: list[Array | None] = [boxes_of(1, 3), scores_of(1, 1, 3)]
    op = make_op(node_of("NonMaxSuppression", inputs), {"": 10})
    got = run_op(op, inputs)[0]
    assert got.shape == (0, 3)
    assert got.dtype == np.int64


def test_non_max_suppression__no_boxes__nothing_chosen() -> None:
    inputs: list[Array | None] = [boxes_of(1, 0), scores_of(1, 2, 0), one(3, np.int64)]
    assert run_op(make_op(node_of("NonMaxSuppression", inputs), {"": 11}), inputs)[0].shape == (0, 3)


def test_non_max_suppression__scores_of_other_boxes__invalid_graph() -> None:
    inputs: list[Array | None] = [boxes_of(1, 3), scores_of(1, 2, 4)]
    with pytest.raises(InvalidGraph, match=r"scores float\[1, classes, 3\]"):
        run_op(make_op(node_of("NonMaxSuppression", inputs), {"": 11}), inputs)

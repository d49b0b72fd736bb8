"""ScatterElements and ScatterND on the GPU: duplicates, reductions, indices that are out of range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyruntime.ops.indexing.scatter import ScatterElements, ScatterND
from tests.harness import run_op
from tests.ops.indexing.scatter_cases import DTYPES, REDUCTIONS, check_scatter, expected


@pytest.mark.parametrize("op_type", ["ScatterElements", "ScatterND"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_scatter__duplicate_indices__updates_apply_in_order(op_type: str, reduction: str, gpu: Any) -> None:
    rng = np.random.default_rng(9)
    for dtype in DTYPES:
        check_scatter(rng, op_type, dtype, reduction, gpu)


def test_scatter__reduction_with_nan__nan_wins(gpu: Any) -> None:
    data, indices = np.zeros(2, np.float32), np.array([0, 1, 0])
    updates = np.array([np.nan, 2, 1], np.float32)
    for reduction in ("max", "min", "add"):
        (y,) = run_op(ScatterElements(reduction=reduction), [data, indices, updates], gpu)
        np.testing.assert_array_equal(y, [np.nan, {"max": 2, "min": 0, "add": 2}[reduction]])


def test_scatter__many_updates__last_one_wins(gpu: Any) -> None:
    rng = np.random.default_rng(1)
    data, updates = rng.standard_normal(5000).astype(np.float32), rng.standard_normal(20000).astype(np.float32)
    indices = rng.integers(0, 5000, 20000)
    wanted = data.copy()
    for i, u in zip(indices, updates, strict=True):
        wanted[i] = u
    np.testing.assert_array_equal(run_op(ScatterElements(), [data, indices, updates], gpu)[0], wanted)
    np.testing.assert_array_equal(run_op(ScatterND(), [data, indices[:, None], updates], gpu)[0], wanted)


@pytest.mark.parametrize("places", [2, 7, 60, 1500])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("reduction", ["add", "mul"])
def test_scatter_elements__unsorted_updates__folded_in_order_to_the_last_bit(
    places: int, axis: int, reduction: str, gpu: Any
) -> None:
    rng = np.random.default_rng(2)
    shape, picks = [3, 4, 2], [2, 4, 2]
    shape[axis], picks[axis] = places, 700
    data, updates = (rng.normal(1, 0.1, s).astype(np.float32) for s in (shape, picks))
    indices = rng.integers(-places, places, picks)
    wanted = expected("ScatterElements", data, indices, updates, axis, reduction)
    for _ in range(2):
        (y,) = run_op(ScatterElements(axis=axis, reduction=reduction), [data, indices, updates], gpu)
        np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize("places", [1, 50, 900])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int64"])
def test_scatter_nd__unsorted_rows__added_in_order_to_the_last_bit(places: int, dtype: str, gpu: Any) -> None:
    rng = np.random.default_rng(3)
    data, updates = (rng.normal(0, 9, s).astype(DTYPES[dtype]) for s in ((places, 5), (1200, 5)))
    indices = rng.integers(0, places, (1200, 1))
    wanted = expected("ScatterND", data, indices, updates, 0, "add")
    np.testing.assert_array_equal(run_op(ScatterND(reduction="add"), [data, indices, updates], gpu)[0], wanted)


@pytest.mark.parametrize("index", [2**62, -(2**62), 2**31, 3, -4])
def test_scatter__index_out_of_range__other_elements_keep_their_values(index: int, gpu: Any) -> None:
    data = np.arange(1, 4, dtype=np.float32)
    (y,) = run_op(ScatterElements(), [data, np.array([index]), np.array([9], np.float32)], gpu)
    edge = 2 if index > 0 else 0
    np.testing.assert_array_equal(np.delete(y, edge), np.delete(data, edge))

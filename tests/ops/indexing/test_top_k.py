"""TopK on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyruntime.errors import InvalidGraph
from pyruntime.ir import DType, TensorType
from pyruntime.ops.indexing.top_k import TopK, TopK1
from tests.harness import run_op
from tests.oracle import check_against_ort

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_top_k__ties__as_onnxruntime(dtype: Any, largest: int, axis: int) -> None:
    x = RNG.integers(0, 6, (4, 5, 6)).astype(dtype)
    check_against_ort("TopK", [x, np.array([3])], opset=11, outputs=2, axis=axis, largest=largest)


def test_top_k__before_opset_10__k_is_attribute() -> None:
    x = np.array([3, 1, 2], np.float32)
    values, indices = run_op(TopK1(k=2, present=(True, True)), [x])
    assert values.tolist() == [3, 2] and indices.tolist() == [0, 2]
    check_against_ort("TopK", [x], opset=9, outputs=2, k=2)
    check_against_ort("TopK", [x, np.array([2])], opset=10, outputs=2)


def test_top_k__nan__greatest() -> None:
    x = np.array([1, np.nan, np.inf, -np.inf], np.float32)
    assert run_op(TopK(), [x, np.array([4])])[1].tolist() == [1, 2, 0, 3]
    assert run_op(TopK(largest=0), [x, np.array([4])])[1].tolist() == [3, 0, 2, 1]


@pytest.mark.parametrize("k", [-1, 6])
def test_top_k__k_out_of_range__invalid_graph(k: int) -> None:
    with pytest.raises(InvalidGraph, match="k in"):
        TopK1(k=k).infer(TensorType(DType.FLOAT, (2, 5)))


def test_top_k__k_zero__empty() -> None:
    values, indices = run_op(TopK(), [np.ones((2, 3), np.float32), np.array([0])])
    assert values.shape == indices.shape == (2, 0)

"""Det and SwiGLU on the GPU."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from e2e.harness.gpu import Gpu
from tests.harness import make_op, run_op
from tests.oracle import node_of


@pytest.mark.parametrize("shape", [(0, 3, 3), (2, 0, 0), (1, 1), (5, 2, 2), (2, 3, 7, 7), (3, 20, 20)])
def test_det__batches_and_sizes__as_the_host(gpu: Gpu, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    op = make_op(node_of("Det", [x]), {"": 22})
    np.testing.assert_allclose(run_op(op, [x], gpu)[0], run_op(op, [x])[0], rtol=1e-4, atol=1e-5)


def test_det__singular_permuted_and_nan__as_the_host(gpu: Gpu) -> None:
    x = np.array([[[0, 1], [1, 0]], [[1, 2], [2, 4]], [[0, 0], [0, 0]], [[np.nan, 1], [1, 2]]], np.float32)
    op = make_op(node_of("Det", [x]), {"": 22})
    np.testing.assert_allclose(run_op(op, [x], gpu)[0], [-1, 0, 0, np.nan])


@pytest.mark.parametrize(("dtype", "rtol"), [(np.float32, 1e-5), (np.float16, 2e-3), (ml_dtypes.bfloat16, 2e-2)])
def test_swiglu__types_and_extremes__as_the_host(gpu: Gpu, dtype: Any, rtol: float) -> None:
    a = np.array([-np.inf, -100, -1, -0.0, 0, 0.5, 90, np.inf, np.nan], np.float32).astype(dtype)
    b = np.arange(1, 10).astype(dtype)
    op = make_op(node_of("SwiGLU", [a, b], alpha=1.5), {"": 28})
    np.testing.assert_allclose(run_op(op, [a, b], gpu)[0], run_op(op, [a, b])[0], rtol=rtol, atol=1e-6)

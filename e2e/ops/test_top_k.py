"""TopK on the GPU."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from e2e.harness.gpu import Gpu
from pyruntime.ir import Array
from pyruntime.ops.indexing.top_k import TopK
from tests.harness import run_op

RNG = np.random.default_rng(0)


def _same(gpu: Gpu, x: Array, k: int, **attributes: Any) -> None:
    op = TopK(present=(True, True), **attributes)
    inputs = [x, np.array([k])]
    for host, device in zip(run_op(op, list(inputs)), run_op(op, list(inputs), gpu), strict=True):
        assert device.dtype == host.dtype
        np.testing.assert_array_equal(device, host)


@pytest.mark.parametrize(
    "dtype", ["float32", "float16", "bfloat16", "int8", "uint8", "int32", "uint32", "int64", "uint64"]
)
def test_top_k__types__as_host(gpu: Gpu, dtype: str) -> None:
    low = 0 if dtype.startswith("u") else -20
    x = RNG.integers(low, 20, (3, 70, 2)).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    for largest in (0, 1):
        _same(gpu, x, 9, axis=1, largest=largest)


def test_top_k__int64_beyond_32_bits__as_host(gpu: Gpu) -> None:
    _same(gpu, RNG.integers(-(2**62), 2**62, (2, 300)), 20)


@pytest.mark.parametrize(("length", "k"), [(5, 5), (64, 64), (65, 3), (1000, 700), (1025, 512), (5000, 40)])
def test_top_k__lengths__as_host(gpu: Gpu, length: int, k: int) -> None:
    _same(gpu, RNG.integers(0, 500, (2, length)).astype(np.float32), k)


def test_top_k__k_beyond_a_block__as_host(gpu: Gpu) -> None:
    _same(gpu, RNG.integers(0, 500, (2, 1500)).astype(np.float32), 1200, largest=0)
    _same(gpu, RNG.integers(0, 500, (1, 1100)), 600)


def test_top_k__nan_infinity_and_zeros__as_host(gpu: Gpu) -> None:
    x = np.array([1, np.nan, np.inf, -np.inf, np.nan, 0.0, -0.0, 0.0, -1], np.float32)
    for largest in (0, 1):
        _same(gpu, x, 9, largest=largest)


def test_top_k__one_output__the_other_is_not_made(gpu: Gpu) -> None:
    x = RNG.random((3, 7)).astype(np.float32)
    op = TopK(present=(True,))
    inputs = [x, np.array([2])]
    np.testing.assert_array_equal(run_op(op, list(inputs), gpu)[0], run_op(op, list(inputs))[0])

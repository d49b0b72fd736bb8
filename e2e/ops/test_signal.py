"""DFT, STFT, MelWeightMatrix and the windows on the GPU."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from e2e.harness.gpu import Gpu
from pyruntime.ir import Array
from tests.harness import make_op, run_op
from tests.oracle import node_of


def noise(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def scalar(number: int) -> Array:
    return np.array(number, np.int64)


def compare(gpu: Gpu, op_type: str, inputs: list[Array | None], tolerance: float, **attributes: Any) -> None:
    """The GPU against float64 on the host, relative to the largest value."""
    op = make_op(node_of(op_type, inputs, **attributes), {"": 20})
    expected = run_op(op, inputs)[0].astype(np.float64)
    got = run_op(op, inputs, gpu)[0].astype(np.float64)
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance * max(1.0, np.abs(expected).max(initial=0)))


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 13, 30, 64, 97, 400, 1024, 1009])
@pytest.mark.parametrize("inverse", [0, 1])
def test_dft__every_kind_of_length__as_the_host(gpu: Gpu, n: int, inverse: int) -> None:
    compare(gpu, "DFT", [noise(3, n, 2)], 2e-6, inverse=inverse)
    compare(gpu, "DFT", [noise(3, n, 1)], 2e-6, inverse=inverse)


@pytest.mark.parametrize("shape", [(2, 12, 3, 5), (2, 3, 12, 5), (12, 2, 3, 5)])
def test_dft__any_axis__as_the_host(gpu: Gpu, shape: tuple[int, ...]) -> None:
    axis = np.array(shape.index(12), np.int64)
    for n in (None, 9, 16):
        length = None if n is None else scalar(n)
        compare(gpu, "DFT", [noise(*shape, 2), length, axis], 2e-6)
        compare(gpu, "DFT", [noise(*shape, 1), length, axis], 2e-6, onesided=1)
        compare(gpu, "DFT", [noise(*shape, 2), length, axis], 2e-6, onesided=1, inverse=1)


@pytest.mark.parametrize(("dtype", "epsilon"), [(np.float16, 2**-10), (ml_dtypes.bfloat16, 2**-7)])
def test_dft__half_precision__one_rounding(gpu: Gpu, dtype: Any, epsilon: float) -> None:
    compare(gpu, "DFT", [noise(2, 15, 1).astype(dtype)], epsilon)


def test_dft__no_rows__empty(gpu: Gpu) -> None:
    x = np.zeros((0, 4, 1), np.float32)
    assert run_op(make_op(node_of("DFT", [x]), {"": 20}), [x], gpu)[0].shape == (0, 4, 2)


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("last", [1, 2])
@pytest.mark.parametrize("n", [5, 16, 400])
def test_stft__frames_and_windows__as_the_host(gpu: Gpu, onesided: int, last: int, n: int) -> None:
    x = noise(2, 3 * n + 1, last)
    compare(gpu, "STFT", [x, scalar(n // 2), noise(n), scalar(n)], 2e-6, onesided=onesided)
    compare(gpu, "STFT", [x, scalar(n // 2), None, scalar(n)], 2e-6, onesided=onesided)


@pytest.mark.parametrize("n", [5, 6, 16, 20, 400, 1009])
@pytest.mark.parametrize("last", [1, 2])
def test_stft__frequencies_0_and_half__signs_of_the_host(gpu: Gpu, n: int, last: int) -> None:
    x = np.stack([2 + np.sin(np.arange(3 * n)), -2 - np.cos(np.arange(3 * n))]).astype(np.float32)[..., None]
    if last == 2:
        x = np.concatenate([x, np.zeros_like(x)], -1)
    inputs = [x, scalar(n), None, scalar(n)]
    op = make_op(node_of("STFT", inputs, onesided=int(last == 1)), {"": 20})
    expected, got = run_op(op, inputs)[0], run_op(op, inputs, gpu)[0]
    for k in {0, n // 2} if n % 2 == 0 else {0}:
        np.testing.assert_array_equal(np.sign(got[:, :, k]), np.sign(expected[:, :, k]))


@pytest.mark.parametrize("op", ["HannWindow", "HammingWindow", "BlackmanWindow"])
@pytest.mark.parametrize("size", [0, 1, 2, 7, 400, 65537])
@pytest.mark.parametrize("periodic", [0, 1])
def test_window__sizes__within_an_ulp_or_two_of_one(gpu: Gpu, op: str, size: int, periodic: int) -> None:
    if size - (not periodic) > 0:
        compare(gpu, op, [scalar(size)], 3e-7, periodic=periodic)


def test_window__float16__rounded_once(gpu: Gpu) -> None:
    compare(gpu, "HannWindow", [scalar(33)], 5e-4, output_datatype=10)

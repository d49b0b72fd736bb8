"""DFT, STFT, MelWeightMatrix and the windows on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyruntime.errors import InvalidGraph
from pyruntime.ir import Array, DType
from pyruntime.kernels.fourier import radices
from pyruntime.ops.signal.dft import fourier_reason
from tests.harness import make_op, run_op
from tests.oracle import check_against_ort, node_of, ort_run


def noise(*shape: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def scalar(number: float, dtype: Any = np.int64) -> Array:
    return np.array(number, dtype)


@pytest.mark.parametrize("opset", [17, 20])
@pytest.mark.parametrize("last", [1, 2])
@pytest.mark.parametrize("length", [None, 4, 7, 9])
@pytest.mark.parametrize("inverse", [0, 1])
def test_dft__padding_cutting_inverse__as_onnxruntime(opset: int, last: int, length: int | None, inverse: int) -> None:
    x = noise(2, 7, 3, last)
    n = None if length is None else scalar(length)
    attributes: dict[str, Any] = {"inverse": inverse}
    if opset == 17:
        check_against_ort("DFT", [x, n], opset=17, tolerance=(1e-3, 1e-4), axis=1, **attributes)
    else:
        check_against_ort("DFT", [x, n, scalar(-3)], opset=20, tolerance=(1e-3, 1e-4), **attributes)


def test_dft__onesided_both_ways__the_signal_again() -> None:
    for n in (8, 9):
        x = noise(2, n, 1)
        forward = make_op(node_of("DFT", [x], onesided=1), {"": 20})
        backward = make_op(node_of("DFT", [x, x], onesided=1, inverse=1), {"": 20})
        spectrum = run_op(forward, [x])[0]
        assert spectrum.shape == (2, n // 2 + 1, 2)
        np.testing.assert_allclose(run_op(backward, [spectrum, scalar(n)])[0], x, atol=1e-6)


def test_dft__float64__as_numpy_to_the_last_digits() -> None:
    x = noise(3, 11, 2, dtype=np.float64)
    y = run_op(make_op(node_of("DFT", [x]), {"": 20}), [x])[0]
    z = np.fft.fft(x[..., 0] + 1j * x[..., 1], axis=1)
    np.testing.assert_allclose(y, np.stack([z.real, z.imag], -1), rtol=1e-14)


@pytest.mark.parametrize(
    ("shape", "attributes", "message"),
    [
        ((2, 5, 3), {}, "1.* or .*2"),
        ((2, 5, 2), {"onesided": 1}, "real input"),
        ((2, 5, 1), {"axis": 2}, "an axis in"),
        ((2, 0, 1), {}, "length 1 or more"),
    ],
)
def test_dft__malformed__invalid_graph(shape: tuple[int, ...], attributes: dict[str, Any], message: str) -> None:
    x = np.zeros(shape, np.float32)
    with pytest.raises(InvalidGraph, match=message):
        run_op(make_op(node_of("DFT", [x], **attributes), {"": 17}), [x])


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("last", [1, 2])
@pytest.mark.parametrize("window", [False, True])
def test_stft__window_step_complex__as_onnxruntime(onesided: int, last: int, window: bool) -> None:
    x = noise(2, 20, last)
    w = noise(6) if window else None
    inputs = [x, scalar(3), w, scalar(6)]
    check_against_ort("STFT", inputs, opset=17, tolerance=(1e-3, 1e-4), onesided=onesided)


@pytest.mark.parametrize("n", [5, 12, 16, 20, 400, 441, 1200])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("onesided", "last"), [(1, 1), (0, 1), (0, 2)])
def test_stft__frequency_0_of_a_signal_without_sign_changes__sign_of_onnxruntime(
    n: int, dtype: Any, onesided: int, last: int
) -> None:
    x = 2 + np.sin(np.arange(4 * n))
    x = np.stack([x, -x]).astype(dtype)[..., None]
    if last == 2:
        x = np.concatenate([x, np.zeros_like(x)], -1)
    inputs: list[Array | None] = [x, scalar(n), np.hanning(n + 1)[:n].astype(dtype), scalar(n)]
    node = node_of("STFT", inputs, onesided=onesided)
    (expected,) = ort_run("STFT", inputs, 17, onesided=onesided)
    (got,) = run_op(make_op(node, {"": 17}), inputs)
    want, imaginary = expected[:, :, 0, 1], got[:, :, 0, 1]
    np.testing.assert_array_equal(np.sign(imaginary), np.sign(want))


@pytest.mark.parametrize("n", [6, 20, 64, 400])
@pytest.mark.parametrize("inverse", [0, 1])
def test_dft__real_numbers__frequency_0_as_onnxruntime_and_no_error_of_powers_of_two(n: int, inverse: int) -> None:
    x = np.stack([2 + np.sin(np.arange(n)), -2 - np.cos(np.arange(n))]).astype(np.float32)[..., None]
    node = node_of("DFT", [x], inverse=inverse)
    (expected,) = ort_run("DFT", [x], 20, inverse=inverse)
    (got,) = run_op(make_op(node, {"": 20}), [x])
    np.testing.assert_array_equal(np.sign(got[:, 0, 1]), np.sign(expected[:, 0, 1]))
    half, opposite = got[:, n // 2, 0], got[:, n // 2, 1]
    np.testing.assert_array_equal(np.sign(opposite), 0 if n == 64 else -np.sign(half))


@pytest.mark.parametrize("n", [1, 2, 7, 31, 48, 100, 127, 441, 1009])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("onesided", "last"), [(1, 1), (0, 1), (0, 2)])
def test_stft__any_frame_length__as_onnxruntime_in_float64(n: int, dtype: Any, onesided: int, last: int) -> None:
    signal, window = noise(2, 3 * n + 5, last), np.hanning(n + 1)[:n].astype(np.float32)
    step, length = scalar(max(1, n // 3)), scalar(n)
    (wide,) = ort_run(
        "STFT", [signal.astype(np.float64), step, window.astype(np.float64), length], 17, onesided=onesided
    )
    inputs: list[Array | None] = [signal.astype(dtype), step, window.astype(dtype), length]
    (got,) = run_op(make_op(node_of("STFT", inputs, onesided=onesided), {"": 17}), inputs)
    assert got.dtype == dtype
    np.testing.assert_allclose(got, wide, rtol=0, atol=1e-5 if dtype is np.float32 else 1e-10)


def test_stft__signal_shorter_than_a_frame__no_frames() -> None:
    x = noise(2, 3, 1)
    y = run_op(make_op(node_of("STFT", [x, x, None, x]), {"": 17}), [x, scalar(1), None, scalar(5)])[0]
    assert y.shape == (2, 0, 3, 2)


def test_stft__window_of_another_length__invalid_graph() -> None:
    x = noise(1, 9, 1)
    op = make_op(node_of("STFT", [x, x, x, x]), {"": 17})
    with pytest.raises(InvalidGraph, match="window of 4 numbers"):
        run_op(op, [x, scalar(1), noise(3), scalar(4)])


@pytest.mark.parametrize("op", ["HannWindow", "HammingWindow", "BlackmanWindow"])
@pytest.mark.parametrize("periodic", [0, 1])
@pytest.mark.parametrize("dtype", [1, 10, 11, 7])
def test_window__types_and_periods__as_onnxruntime(op: str, periodic: int, dtype: int) -> None:
    if dtype == 10:
        pytest.skip("onnxruntime has no float16 windows")
    for n in (0, 2, 5, 16):
        check_against_ort(op, [scalar(n)], opset=17, tolerance=(1e-5, 1e-6), periodic=periodic, output_datatype=dtype)


@pytest.mark.parametrize(
    ("bands", "length", "rate", "low", "high"), [(8, 16, 8192, 0, 4096), (20, 400, 16000, 20, 7600)]
)
@pytest.mark.parametrize("dtype", [1, 11])
def test_mel_weight_matrix__real_parameters__as_onnxruntime(
    bands: int, length: int, rate: int, low: float, high: float, dtype: int
) -> None:
    inputs = [scalar(bands), scalar(length), scalar(rate), scalar(low, np.float32), scalar(high, np.float32)]
    check_against_ort("MelWeightMatrix", inputs, opset=17, tolerance=(1e-5, 1e-6), output_datatype=dtype)


@pytest.mark.parametrize(
    ("n", "expected"), [(1, (1,)), (7, (7,)), (4096, (16, 16, 16)), (400, (20, 20)), (1009, (1009,))]
)
def test_radices__length__factors_of_the_cheapest_passes(n: int, expected: tuple[int, ...]) -> None:
    assert tuple(sorted(radices(n))) == expected


@pytest.mark.parametrize(
    ("n", "dtype", "reason"),
    [
        (2**62 + 1, DType.FLOAT, "above"),
        (8191 * 2, DType.FLOAT, "prime factor"),
        (8, DType.DOUBLE, "exact on the host"),
        (4096 * 1009, DType.FLOAT16, None),
    ],
)
def test_fourier_reason__lengths_and_types__why_not_on_the_gpu(n: int, dtype: DType, reason: str | None) -> None:
    found = fourier_reason(n, dtype)
    assert (found is None) if reason is None else (found is not None and reason in found)

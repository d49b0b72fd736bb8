"""The graph of examples/log_mel.onnx against the same formula in NumPy and onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import pyruntime
from tools.log_mel import TARGET, log_mel

Array = np.ndarray[Any, np.dtype[Any]]


def edges(count: int) -> Array:
    """`count` + 2 frequencies in Hz between 0 and 8000, equally far on Slaney's scale of pitches."""
    top = 15 + 27 * np.log(8) / np.log(6.4)
    mel = np.linspace(0, top, count + 2)
    return np.asarray(np.where(mel < 15, mel * 200 / 3, 1000 * np.exp((mel - 15) * np.log(6.4) / 27)), np.float32)


def features(samples: Array, count: int) -> Array:
    """Log-mel features [count, n // 160] of samples [n], in float64."""
    padded = np.pad(samples.astype(np.float64), 200, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, 400)[::160][:-1]
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 400)
    power = np.abs(np.fft.rfft(frames * window, axis=1)) ** 2
    points, bins = edges(count).astype(np.float64), np.arange(201) * 40.0
    filters = [
        2 / (high - low) * np.interp(bins, [low, centre, high], [0, 1, 0])
        for low, centre, high in zip(points, points[1:], points[2:], strict=False)
    ]
    decades = np.log10(np.maximum(np.asarray(filters) @ power.T, 1e-10))
    return np.asarray((np.maximum(decades, decades.max() - 8) + 4) / 4)


def test_file__committed__is_what_the_script_makes() -> None:
    assert onnx.load(TARGET) == log_mel()


@pytest.mark.parametrize(("count", "length"), [(80, 16000), (128, 8000), (80, 12345)])
def test_graph__of_a_chirp_and_noise__is_the_formula(count: int, length: int) -> None:
    """Within 5 of the 8 decades closely; at the lowest ones float32 sums of 400 products have few digits left."""
    time = np.arange(length) / 16000
    noise = np.random.default_rng(count).standard_normal(length) * 0.01
    samples = np.asarray(np.sin(2 * np.pi * (200 + 1500 * time) * time) * 0.5 + noise, np.float32)
    feeds = {"samples": samples[np.newaxis], "edges": edges(count)}
    expected = features(samples, count)[:, : length // 160]
    for runtime in (onnxruntime, pyruntime):
        session = runtime.InferenceSession(str(TARGET), providers=["CPUExecutionProvider"])
        (found,) = session.run(None, feeds)
        loud = expected > expected.max() - 1.25
        np.testing.assert_allclose(found[0][loud], expected[loud], atol=2e-3, err_msg=runtime.__name__)
        np.testing.assert_allclose(found[0], expected, atol=1e-2, err_msg=runtime.__name__)

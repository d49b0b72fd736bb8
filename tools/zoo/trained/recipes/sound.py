"""A speech-like signal, and its features: windows, spectra, logarithms of mel energies."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from tools.zoo.trained.recipes.context import Context

__all__ = ["VALUES", "mel", "spectrum", "speech", "voice", "windows"]

Array = np.ndarray[Any, Any]
SECONDS, VOICES = 12, 4


def voice(rate: int, seed: int) -> Array:
    """Return one of VOICES signals at a sampling rate."""
    return _voice(rate, seed % VOICES)


@functools.lru_cache(16)
def _voice(rate: int, seed: int) -> Array:
    """Synthesize seconds of voiced syllables with formants, pauses, fricatives and noise; float32 in [-1, 1]."""
    random = np.random.default_rng(seed)
    time = np.arange(SECONDS * rate) / rate
    pitch = 120 + 25 * np.sin(2 * np.pi * 0.7 * time) + 10 * np.sin(2 * np.pi * 5 * time)
    phase = 2 * np.pi * np.cumsum(pitch) / rate
    syllable = np.floor(time * 4).astype(int)
    vowels = np.array([[730, 1090, 2440], [270, 2290, 3010], [300, 870, 2240], [530, 1840, 2480], [570, 840, 2410]])
    coarse = slice(None, None, rate // 200)
    formants = vowels[random.integers(0, len(vowels), syllable.max() + 1)][syllable[coarse]]
    made = np.zeros_like(time)
    for number in range(1, int(min(4000, rate / 2 - 200) // 155)):
        heights = np.exp(-np.square((number * pitch[coarse, None] - formants) / 130)) @ [1.0, 0.5, 0.25]
        made += (np.interp(time, time[coarse], heights) + 0.02) * np.sin(number * phase) / np.sqrt(number)
    spoken = random.uniform(size=syllable.max() + 1)[syllable] > 0.25
    made *= np.sin(np.pi * (time * 4 % 1)) ** 2 * spoken
    hiss = np.diff(random.standard_normal(len(time) + 1)) * (~spoken) * (np.sin(np.pi * (time * 4 % 1)) > 0.7)
    made = made / np.abs(made).max() * 0.6 + hiss * 0.03 + random.standard_normal(len(time)) * 1e-3
    whole: Array = made.astype(np.float32)
    return whole


def part(signal: Array, start: int, length: int) -> Array:
    """Return samples from `start` on: silence before the signal, which repeats after its end."""
    where = np.arange(start, start + length)
    return np.where(where < 0, np.float32(0), signal[where % len(signal)])


def speech(context: Context, rate: int = 16000, hop: int = 0, gain: float = 1.0, last: bool = True) -> Array:
    """Samples along the last axis, or the one before it; each step begins `hop` samples after the previous one.

    Samples of a window beyond `hop` are those before the step.
    """
    shape = context.shape if last else context.shape[:-1]
    length = shape[-1]
    start = 2 * rate // 10 + context.step * hop - (max(length - hop, 0) if hop else 0)
    rows = [part(voice(rate, context.seed + row), start, length) for row in range(int(np.prod(shape[:-1])))]
    return (np.stack(rows) * gain).reshape(context.shape).astype(np.float32)


def windows(context: Context, rate: int = 16000, hop: int = 512) -> Array:
    """[rows, samples]: each row begins `hop` samples after the previous one."""
    rows, length = context.shape
    start = context.step * rows * hop - (length - hop)
    return np.stack([part(voice(rate, context.seed), start + row * hop, length) for row in range(rows)])


def frames(context: Context, count: int, size: int, hop: int, rate: int, row: int) -> Array:
    """Return the short-time Fourier transform of a signal from this step on, complex [count, size // 2 + 1]."""
    signal = voice(rate, context.seed + row)
    start = rate // 5 + context.step * count * hop
    cut = np.stack([part(signal, start + i * hop, size) for i in range(count)])
    return np.fft.rfft(cut * np.sqrt(np.hanning(size)), axis=1)


def spectrum(context: Context, size: int = 512, hop: int = 256, rate: int = 16000, form: str = "magnitude") -> Array:
    """[1, frames, bins] of magnitudes or phases, or [1, bins, frames, 2] of complex numbers (`form` "complex")."""
    count = context.shape[2] if form == "complex" else context.shape[1]
    made = frames(context, count, size, hop, rate, 0)
    if form == "complex":
        return np.stack([made.real.T, made.imag.T], -1)[None].astype(np.float32)
    return (np.abs(made) if form == "magnitude" else np.angle(made))[None].astype(np.float32)


def mel(
    context: Context,
    axes: str = "tb",
    rate: int = 16000,
    hop: int = 160,
    mean: float = 0.0,
    scale: float = 1.0,
    trailing: int = 0,
) -> Array:
    """Logarithms of band energies, normalized to a mean and a deviation.

    The last two axes, before `trailing` axes of length 1, are times and bands (`axes` "tb"), or the reverse.
    """
    shape = context.shape[: len(context.shape) - trailing]
    count, bands = shape[-2:] if axes == "tb" else shape[:-3:-1]
    rows = []
    for row in range(int(np.prod(shape[:-2]))):
        power = np.square(np.abs(frames(context, count, 1024, hop, rate, row)))
        centres = np.linspace(0, 1, bands) ** 1.5 * (power.shape[1] - 1)
        nearest = np.abs(np.arange(power.shape[1])[:, None] - centres) / (1 + centres / 12)
        logs = np.log10(power @ np.maximum(0, 1 - nearest / 2) + 1e-6)
        logs = (logs - logs.mean()) / logs.std() * scale + mean
        rows.append(logs if axes == "tb" else logs.T)
    return np.stack(rows).reshape(context.shape).astype(np.float32)


VALUES: Mapping[str, Any] = {"speech": speech, "windows": windows, "spectrum": spectrum, "mel": mel}

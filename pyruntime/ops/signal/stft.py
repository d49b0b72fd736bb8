"""STFT: Fourier transforms of a signal's windowed frames. Source: ONNX operator STFT."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Target, inp, out
from pyruntime.kernels.fourier import Rows, transform
from pyruntime.ops.base import LATEST, Op, Unsupported, op
from pyruntime.ops.operands import named, optional
from pyruntime.ops.signal.dft import as_complex, fourier_reason, spectrum


@op("STFT", opsets=range(17, LATEST + 1))
class STFT(Op):
    """y[b, f, k] = Σ_n signal[b, f·frame_step + n]·window[n]·exp(−2πi·k·n/N), N = frame_length.

    signal: [batch, length, 1] real or [batch, length, 2] complex (or [batch, length] real), floats; window: [N] or
    [N, 1, ..], default ones. y: [batch, frames, bins, 2], frames = (length − N) div frame_step + 1, bins = N div 2 + 1
    with `onesided`, else N.
    """

    operands = named("signal frame_step", optional="window frame_length")

    onesided: int = 1

    def _frames(self, inputs: tuple[Any, ...]) -> tuple[int, int, int]:
        """Return frame length, frame step and number of frames, in samples."""
        signal, frame_step, window, frame_length = self.operands(*inputs)
        if signal.rank not in (2, 3) or (signal.rank == 3 and signal.shape[2] not in (1, 2)):
            self.fail("a signal [batch, length, 1 or 2]", signal)
        if window is not None and (window.shape[:1] != (window.size,) or window.dtype is not signal.dtype):
            self.fail(f"a window [N] of type {signal.dtype.type_string}", window)
        total = signal.shape[1]
        n = frame_length.ints()[0] if frame_length is not None else window.shape[0] if window is not None else total
        step = frame_step.ints()[0]
        if window is not None and window.shape[0] != n:
            self.fail(f"a window of {n} numbers, the frame length", window.shape[0])
        if n < 1 or step < 1:
            self.fail("a frame length and step of 1 or more", f"{n} and {step}")
        return n, step, max(0, (total - n) // step + 1)

    def infer(self, *inputs: Any) -> tuple[TensorType, ...]:
        signal: TensorType = inputs[0]
        self.floating(signal)
        n, _, frames = self._frames(inputs)
        return (signal.with_shape(signal.shape[0], frames, n // 2 + 1 if self.onesided else n, 2),)

    def evaluate(self, *inputs: Any) -> tuple[Array, ...]:
        signal, frame_step, window, frame_length = self.operands(*inputs)
        x = as_complex(signal if signal.ndim == 3 else signal[..., None])
        n = int(frame_length.reshape(())) if frame_length is not None else len(window) if window is not None else None
        n = x.shape[1] if n is None else n
        bins = n // 2 + 1 if self.onesided else n
        if x.shape[1] < n:
            return (np.zeros((len(x), 0, bins, 2), signal.dtype),)
        frames = np.lib.stride_tricks.sliding_window_view(x, n, axis=1)[:, :: int(frame_step.reshape(()))]
        weighted = frames if window is None else frames * window.reshape(-1).astype(np.float64)
        half = bool(self.onesided) and (signal.ndim == 2 or signal.shape[2] == 1)
        y = spectrum(weighted, n, 2, onesided=half, inverse=False, double=signal.dtype == np.float64)
        return (y[:, :, :bins],)

    def lower(self, target: Target, *inputs: Any) -> tuple[Dispatch, ...]:
        signal, _, window, _ = self.operands(*inputs)
        length, step, frames = self._frames(inputs)
        n = int(length)  # its factors are the passes
        reason = fourier_reason(n, signal.dtype)
        if reason:
            raise Unsupported(reason)
        (y,) = self.infer(*inputs)
        batch, total = signal.shape[:2]
        bins = y.shape[2]
        x = signal if signal.rank == 3 else signal.with_shape(*signal.shape, 1)
        source = Rows(frames, total, step, 1, n)
        into = Rows(frames, frames * bins, bins, 1, bins)
        return transform(target, n, batch * frames, (inp(0, x), source), (out(0, y), into), optional(2, window))

"""DFT: y[k] = Σ_n x[n]·exp(−2πi·k·n/N) along an axis, or its inverse. Source: ONNX operator DFT."""

from __future__ import annotations

import math

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Target, inp, out
from pyruntime.kernels.fourier import MOST_LENGTH, MOST_RADIX, Rows, phase_error, radices, transform
from pyruntime.ops.base import LATEST, Op, Unsupported, attributes, op

__all__ = ["as_complex", "fourier_reason", "spectrum"]


def fourier_reason(n: int, dtype: DType) -> str | None:
    """Return why a transform of length n cannot run on the GPU, or None."""
    if dtype is DType.DOUBLE:
        return "float64 is exact on the host"
    if n > MOST_LENGTH:
        return f"length {n} is above {MOST_LENGTH}"
    if max(radices(n)) > MOST_RADIX:
        return f"length {n} has a prime factor above {MOST_RADIX}; the host's transform is faster"
    return None


def as_complex(x: Array) -> Array:
    """Convert x [..., 1 or 2] (real, or real and imaginary part) to complex128 [...]."""
    if x.shape[-1] == 1:
        return x[..., 0].astype(np.complex128)
    return x[..., 0].astype(np.float64) + 1j * x[..., 1].astype(np.float64)


def spectrum(signal: Array, n: int, axis: int, *, onesided: bool, inverse: bool, double: bool) -> Array:
    """Return the transform of length n along `axis`, as [..., 2] with the phases of `phase_error`.

    Args:
        signal: complex numbers.
        onesided: of real input, return only values 0 .. n div 2.
        double: the model's tensor is float64.
    """
    if onesided:
        y = np.fft.rfft(signal.real, n, axis)
    else:
        y = np.fft.ifft(signal, n, axis) if inverse else np.fft.fft(signal, n, axis)
    pairs = np.stack([y.real, y.imag], -1)
    values = np.moveaxis(pairs, axis, 0)
    for k in {0, n // 2} if n % 2 == 0 else {0}:
        values[k, ..., 1] -= phase_error(n, double) * values[k, ..., 0]
    return pairs


@attributes
class _DFT(Op):
    """Base of the DFT versions, which differ in the source of the axis.

    x: [..., 1] real or [..., 2] complex, floats; y: [..., 2] with dft_length values along the axis, or dft_length div 2
    + 1 with `onesided`. With `onesided` and `inverse`, x is half of a spectrum and y is real, [..., 1].
    """

    inverse: int = 0
    onesided: int = 0

    def _along(self, given: int | None) -> int:
        """Return the axis, given the value of input `axis`."""
        raise NotImplementedError

    def _plan(self, shape: tuple[int, ...], length: int | None, axis: int | None) -> tuple[int, int]:
        """Return (non-negative axis, transform length). Raises InvalidGraph if they do not fit `shape`."""
        rank, along = len(shape), self._along(axis)
        if rank < 2 or shape[-1] not in (1, 2):
            self.fail("a tensor [..., 1] or [..., 2] of rank 2 or more", list(shape))
        if not -rank <= along < rank or along % rank == rank - 1:
            self.fail(f"an axis in [{-rank}, -2] or [0, {rank - 2}]", along)
        if self.onesided and not self.inverse and shape[-1] == 2:
            self.fail("a real input, [..., 1], for a one-sided transform", list(shape))
        along %= rank
        n = length if length is not None else shape[along]
        if length is None and self.inverse and self.onesided:
            n = 2 * (n - 1)
        if n < 1:
            self.fail("a transform of length 1 or more", n)
        return along, n

    def _typed_plan(self, x: TensorType, dft_length: TensorType | None, axis: TensorType | None) -> tuple[int, int]:
        for scalar in (dft_length, axis):
            if scalar is not None and scalar.size != 1:
                self.fail("scalars as dft_length and axis", scalar)
        length = None if dft_length is None else dft_length.ints()[0]
        return self._plan(x.shape, length, None if axis is None else axis.ints()[0])

    def infer(
        self, x: TensorType, dft_length: TensorType | None = None, axis: TensorType | None = None
    ) -> tuple[TensorType, ...]:
        self.floating(x)
        return self._outputs(x, *self._typed_plan(x, dft_length, axis))

    def _outputs(self, x: TensorType, along: int, n: int) -> tuple[TensorType, ...]:
        values = n // 2 + 1 if self.onesided and not self.inverse else n
        last = 1 if self.onesided and self.inverse else 2
        return (x.with_shape(*x.shape[:along], values, *x.shape[along + 1 : -1], last),)

    def evaluate(self, x: Array, dft_length: Array | None = None, axis: Array | None = None) -> tuple[Array, ...]:
        length = None if dft_length is None else int(dft_length.reshape(()))
        along, n = self._plan(x.shape, length, None if axis is None else int(axis.reshape(())))
        signal = as_complex(x)
        if self.inverse and self.onesided:
            return (np.fft.irfft(signal, n, along)[..., None],)
        onesided, inverse, double = bool(self.onesided), bool(self.inverse), x.dtype == np.float64
        return (spectrum(signal, n, along, onesided=onesided, inverse=inverse, double=double),)

    def lower(
        self,
        target: Target,
        x: TensorType,
        dft_length: TensorType | None = None,
        axis: TensorType | None = None,
    ) -> tuple[Dispatch, ...]:
        along, length = self._typed_plan(x, dft_length, axis)
        n = int(length)  # the kernel has one pass per factor
        (y,) = self._outputs(x, along, length)
        reason = fourier_reason(n, x.dtype)
        if reason:
            raise Unsupported(reason)
        inner, outer = math.prod(x.shape[along + 1 : -1]), math.prod(x.shape[:along])
        source, into = (Rows(inner, t.shape[along] * inner, 1, inner, t.shape[along]) for t in (x, y))
        inverse, half = bool(self.inverse), bool(self.inverse and self.onesided)
        rows = outer * inner
        return transform(target, n, rows, (inp(0, x), source), (out(0, y), into), inverse=inverse, hermitian=half)


@op("DFT", opsets=range(17, 20))
class DFTAttribute(_DFT):
    """DFT with the axis as an attribute."""

    axis: int = 1

    def infer(self, x: TensorType, dft_length: TensorType | None = None) -> tuple[TensorType, ...]:  # type: ignore[override]
        return super().infer(x, dft_length)

    def _along(self, given: int | None) -> int:
        return self.axis


@op("DFT", opsets=range(20, LATEST + 1))
class DFT(_DFT):
    """DFT with the axis as an input, default -2."""

    def _along(self, given: int | None) -> int:
        return -2 if given is None else given

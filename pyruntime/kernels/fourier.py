"""Discrete Fourier transforms on the GPU: mixed-radix Stockham passes, for every length.

A transform of N = R_1 · R_2 · ... · R_m is m passes over all rows; a pass of radix R, after passes of product L, gives

    y[o] = sum over r < R of x[j + r·N/R] · w^(r·(o mod L·R)),   w = exp(∓2πi / (L·R)),
    j = (o div L·R)·L + o mod L

so every invocation makes one element and the order comes out right without a permutation. A prime length is one pass:
the plain sum. `phase_error` says which sign a vanishing imaginary part has. Source: Govindaraju et al., High
Performance Discrete Fourier Transforms on Graphics Processors, 2008.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from pyruntime.ir import Constant, DType
from pyruntime.kernels.ir.dispatch import Dispatch, Operand, constant, scratch
from pyruntime.kernels.ir.launch import launch
from pyruntime.target import Target

__all__ = ["MOST_LENGTH", "MOST_RADIX", "Rows", "phase_error", "radices", "transform"]

MOST_RADIX = 4096
"""Longest sum of one pass: a larger prime factor is left to the host."""

MOST_LENGTH = 1 << 22
"""Longest transform: its table of twiddle factors takes 8 bytes a value."""

_PASS_COST = 20
"""What a pass costs beyond its sum, in terms of the sum."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Where rows lie: row r begins at (r div inner)·outer_stride + (r mod inner)·inner_stride, in (complex) elements.

    `length` elements of a row are there, `step` apart.
    """

    inner: int
    outer_stride: int
    inner_stride: int
    step: int
    length: int

    def steps(self) -> dict[str, int]:
        """The numbers the kernel's parameters need."""
        return {"outer": self.outer_stride, "inner": self.inner_stride, "step": self.step, "length": self.length}


def _primes(n: int) -> list[int]:
    found, p = [], 2
    while p * p <= n:
        while n % p == 0:
            found.append(p)
            n //= p
        p += 1
    return [*found, n] if n > 1 else found


@lru_cache(maxsize=256)
def radices(n: int) -> tuple[int, ...]:
    """Factors of n that make the passes cheapest: the sum of the factors and a constant for each pass is least."""
    products = {1}
    for p in _primes(n):
        products |= {q * p for q in products}
    best: dict[int, tuple[int, tuple[int, ...]]] = {1: (0, ())}
    for size in sorted(products - {1}):
        factors = [r for r in products if r > 1 and size % r == 0]
        choices = [(best[size // r][0] + r + _PASS_COST, (*best[size // r][1], r)) for r in factors]
        best[size] = min(choices)
    return best[n][1] or (1,)


def phase_error(n: int, double: bool = False) -> float:
    """The angle in radians by which the values at frequencies 0 and n / 2 are turned back: it has a sign, no size.

    The imaginary part of a real signal's spectrum is 0 there, and exporters write the phase as `imag > 0 ? atan + pi :
    atan - pi` where the real part is negative, so its sign decides between pi and -pi. A length that is not a power of
    two goes through Bluestein's transforms in onnxruntime, whose twiddle factors come from pi rounded to the tensor's
    type: the error of pi gives its results this sign. With it the phase of a negative float32 number is pi, as
    `torch.angle` gives. The size is far below rounding, so that results stay those of the definition.
    """
    if n & (n - 1) == 0:
        return 0.0
    return -1e-28 if double else 1e-13


@lru_cache(maxsize=32)
def _twiddles(n: int, inverse: bool) -> Constant:
    """exp(∓2πi k / n) as (real, imaginary), k = 0 .. n - 1; exact at multiples of a quarter turn."""
    angle = (2 if inverse else -2) * np.pi * np.arange(n) / n
    factors = np.stack([np.cos(angle), np.sin(angle)], -1)
    return Constant.from_array(np.where(np.abs(factors) < 1e-12, 0, factors).astype(np.float32))


def transform(
    target: Target,
    n: int,
    rows: int,
    signal: tuple[Operand, Rows],
    output: tuple[Operand, Rows],
    window: Operand | None = None,
    inverse: bool = False,
    hermitian: bool = False,
) -> tuple[Dispatch, ...]:
    """The transforms of length n of `rows` rows of the signal, zero-padded or cut to n.

    Args:
        signal, output: operands whose last dimension is 1 (real) or 2 (real, imaginary), and where rows lie in them.
        window: n factors for the elements of a row.
        inverse: conjugate twiddles, and 1/n.
        hermitian: the signal holds the values 0 .. n div 2 of a spectrum whose other half is their conjugate.
    """
    (x, source), (y, into) = signal, output
    factors = radices(n)
    operands = {"signal": x, "output": y, "twiddle": constant(_twiddles(n, inverse)), "window": window}
    made, done = [], 1
    buffers = [scratch(DType.FLOAT, rows, n, 2) for _ in range(2)]
    for k, radix in enumerate(factors):
        first, last = k == 0, k == len(factors) - 1
        operands |= {"source": buffers[k % 2], "into": buffers[1 - k % 2]}
        flags = {
            "FIRST": first,
            "LAST": last,
            "REAL": first and x.type.shape[-1] == 1,
            "HERMITIAN": first and hermitian,
            "WINDOW": first and window is not None,
            "REAL_OUT": last and y.type.shape[-1] == 1,
        }
        values = {
            "n": n,
            "rows": rows,
            "done": done,
            "inner": source.inner,
            "scale": 1 / n if inverse else 1.0,
            "phase_error": phase_error(n),
            **{f"signal_{k}": v for k, v in source.steps().items()},
            **{f"output_{k}": v for k, v in into.steps().items()},
        }
        defines = {"RADIX": radix, **{name: int(on) for name, on in flags.items()}}
        made.append(launch("dft_pass", operands, target.grid(rows * n), defines, values, 8 * rows * n * radix))
        done *= radix
    return tuple(made)

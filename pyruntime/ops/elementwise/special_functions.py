"""Special functions that NumPy lacks: erf."""

from __future__ import annotations

import math

import numpy as np

from pyruntime.ir import Array

__all__ = ["erf"]

_BLOCK = 4096
"""Number of elements processed at a time, so that intermediate results stay in the CPU cache."""

# erf(x) / x as a polynomial in x^2: its Maclaurin series, which ends below 2^-56 on [0, 1].
_NEAR = [(-1) ** n * 2 / math.sqrt(math.pi) / (math.factorial(n) * (2 * n + 1)) for n in range(18)]

# exp(x^2) erfc(x) for x in [1, 6] as a polynomial in (x - 2) / (x + 2): Chebyshev fit, see tools/fit_math.py.
_TAIL = [
    *(0.25539567631050597, -0.42718584741395815, 0.24165819424245857, -0.07897858101573614, 0.0037328924029832095),
    *(0.006997461743438831, -0.00084714314989199, -0.0009819773098229427, 4.355314354503371e-05),
    *(0.00017436841525572122, 2.7551844795865977e-05, -2.7668026533240455e-05, -1.4084647355787418e-05),
    *(1.9034711672509966e-06, 3.8555595880797544e-06),
]


def _horner(coefficients: list[float], x: Array) -> Array:
    result = np.full_like(x, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        result *= x
        result += c
    return result


def _erf_block(x: Array) -> Array:
    a = np.minimum(np.abs(x), 6.0)
    near = a < 1.0
    if near.all():
        return np.multiply(x, _horner(_NEAR, x * x))
    tail = 1.0 - np.exp(-a * a) * _horner(_TAIL, (a - 2.0) / (a + 2.0))
    if near.any():
        tail[near] = a[near] * _horner(_NEAR, np.square(a[near]))
    result: Array = np.copysign(tail, x)
    return result


def erf(x: Array) -> Array:
    """Error function in float64 (absolute error below 3e-16)."""
    flat = np.asarray(x, np.float64).reshape(-1)
    made = np.empty_like(flat)
    for start in range(0, flat.size, _BLOCK):
        made[start : start + _BLOCK] = _erf_block(flat[start : start + _BLOCK])
    return made.reshape(np.shape(x))

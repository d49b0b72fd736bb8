"""Fit the polynomials of shaders/lib/math.wgsl and ops/elementwise/special_functions.py; print their coefficients.

    python -m tools.fit_math

Each is the polynomial p that minimizes the maximum error |w(x) (p(t(x)) - f(x))| on its interval, by Lawson's iteration
(least squares whose weights grow where the error is large). The weight makes the error relative to the function that
the polynomial is part of. Coefficients are printed from the constant up, with the maximum error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.polynomial import Polynomial, chebyshev
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]
Function = Callable[[Floats], Floats]


@dataclass(frozen=True)
class Fit:
    """A polynomial to fit.

    Attributes:
        name: the WGSL or Python function that it is part of.
        interval: range of x.
        variable: t(x), the polynomial's variable.
        target: f(x), the approximated function.
        result: the function that it is part of, for the relative error; `factor` times the polynomial's error enters
            it.
        degree: degree of the polynomial in t.
    """

    name: str
    interval: tuple[float, float]
    variable: Function
    target: Function
    factor: Function
    result: Function
    degree: int


def square(x: Floats) -> Floats:
    """x^2"""
    return x * x


def _odd(name: str, function: Function, end: float, degree: int) -> Fit:
    """x + x^3 p(x^2)"""
    return Fit(name, (1e-2, end), square, lambda x: (function(x) - x) / x**3, lambda x: x**3, function, degree)


def _moved(x: Floats) -> Floats:
    return (x - 2) / (x + 2)


FITS = [
    Fit(
        "twice_atanh",
        (1e-3, 0.1716),
        square,
        lambda s: (2 * np.arctanh(s) - 2 * s) / s**3,
        lambda s: s**3,
        lambda s: 2 * np.arctanh(s),
        3,
    ),
    Fit("exponential", (-0.347, 0.347), lambda x: x, lambda x: (np.expm1(x) - x) / x**2, square, np.exp, 4),
    Fit("expm1", (-1, 1), lambda x: x, lambda x: (np.expm1(x) - x) / x**2, square, np.expm1, 6),
    _odd("hyperbolic_tangent", np.tanh, 0.6, 4),
    _odd("hyperbolic_sine", np.sinh, 1.0, 3),
    _odd("arcsine_near_zero", np.arcsin, 0.5, 4),
    _odd("arctangent", np.arctan, 1.0, 8),
    _odd("sine_near_zero", np.sin, np.pi / 4 * 1.001, 3),
    Fit(
        "cosine_near_zero",
        (1e-2, np.pi / 4 * 1.001),
        square,
        lambda x: (np.cos(x) - 1 + x * x / 2) / x**4,
        lambda x: x**4,
        np.cos,
        2,
    ),
    _odd("tangent", np.tan, np.pi / 4 * 1.001, 6),
    Fit("erf_near_zero", (1e-2, 1), square, lambda x: special.erf(x) / x, lambda x: x, special.erf, 6),
    Fit("erfc_tail", (1, 10.2), _moved, special.erfcx, np.ones_like, special.erfcx, 8),
    Fit(
        "power_of_positive",
        (1e-3, 0.1716),
        square,
        lambda s: 2 * (np.arctanh(s) - s) / np.log(2) / s**3,
        lambda s: s**3,
        lambda s: 2 * np.arctanh(s),
        3,
    ),
]


def solve(fit: Fit, points: int = 2000, rounds: int = 400) -> tuple[float, Floats]:
    """Return the maximum error and the coefficients, constant first."""
    low, high = fit.interval
    x = (low + high) / 2 + (high - low) / 2 * np.cos(np.pi * (np.arange(points) + 0.5) / points)
    x = x[np.abs(x) > 1e-4]
    t = fit.variable(x)
    start, end = float(t.min()), float(t.max())
    basis = chebyshev.chebvander((2 * t - start - end) / (end - start), fit.degree)
    target, weight = fit.target(x), np.abs(fit.factor(x) / fit.result(x))
    emphasis = np.ones_like(x)
    best = (np.inf, np.zeros(fit.degree + 1))
    for _ in range(rounds):
        scale = np.sqrt(emphasis) * weight
        c = np.linalg.lstsq(basis * scale[:, None], target * scale, rcond=None)[0]
        error = weight * np.abs(basis @ c - target)
        worst = float(error.max())
        if worst < best[0]:
            best = (worst, c)
        emphasis *= error / worst + 1e-12
        emphasis /= emphasis.max()
    scaled = Polynomial([-(start + end) / (end - start), 2 / (end - start)])
    return best[0], np.asarray(Polynomial(chebyshev.cheb2poly(best[1]))(scaled).coef)


def erfc_in_double() -> Floats:
    """exp(x^2) erfc(x) on [1, 6] as a polynomial in (x - 2) / (x + 2), interpolated at Chebyshev points."""
    start, end, degree, points = -1 / 3, 0.5, 14, 400
    s = np.cos(np.pi * (np.arange(points) + 0.5) / points)
    t = (start + end) / 2 + (end - start) / 2 * s
    c = chebyshev.chebfit(s, special.erfcx(2 * (1 + t) / (1 - t)), degree)
    scaled = Polynomial([-(start + end) / (end - start), 2 / (end - start)])
    return np.asarray(Polynomial(chebyshev.cheb2poly(c))(scaled).coef)


def main() -> None:
    """Print every polynomial."""
    for fit in FITS:
        error, coefficients = solve(fit)
        print(f"{fit.name}: {error:.1e}  {', '.join(f'{c:.8g}' for c in coefficients.astype(np.float32))}")
    print("_special._TAIL:", ", ".join(repr(float(c)) for c in erfc_in_double()))


if __name__ == "__main__":
    main()

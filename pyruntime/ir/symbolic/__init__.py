"""Sizes that are known when a plan runs: dimensions, polynomials, ranges."""

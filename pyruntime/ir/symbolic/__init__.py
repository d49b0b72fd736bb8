"""Dynamic sizes, whose values are known only when a plan runs: dimensions, polynomials, ranges."""

"""Operators that fold elements along axes: sums, extrema, cumulative sums."""

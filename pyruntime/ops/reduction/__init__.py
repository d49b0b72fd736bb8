"""Reductions, ArgMax and ArgMin, cumulative sums and products."""

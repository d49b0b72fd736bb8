"""Plans on a device: memory, weights, recordings, runs."""

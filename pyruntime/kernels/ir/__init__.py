"""What kernels and their dispatches are made of."""

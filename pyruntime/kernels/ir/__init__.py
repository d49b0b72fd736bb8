"""Data types of kernels, operands and dispatches."""

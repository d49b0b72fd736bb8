"""Convolution, pooling and other sliding-window operators."""

"""Convolutions, pooling, and other operators with sliding windows."""

"""Operators that create tensors from shapes and attributes."""

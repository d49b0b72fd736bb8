"""Operators that passes write and models do not have."""

"""Operators that copy or rearrange elements."""

"""Operators of strings."""

"""Operators that read or write elements at positions that are themselves data."""

"""Operators that read or write elements at data-dependent positions."""

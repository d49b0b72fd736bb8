"""Operators of domain "pyruntime", which only graph passes create."""

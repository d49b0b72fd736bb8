"""Operators of sequences and optionals."""

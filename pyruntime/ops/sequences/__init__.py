"""Operators on sequences and optionals."""

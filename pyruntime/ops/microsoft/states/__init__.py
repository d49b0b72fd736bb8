"""Operators of com.microsoft that carry states from token to token."""

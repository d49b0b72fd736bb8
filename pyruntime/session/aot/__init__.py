"""Ahead-of-time compilation, and cached plans."""

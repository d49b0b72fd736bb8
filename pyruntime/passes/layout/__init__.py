"""Passes that move, merge or remove layout changes."""

"""Passes that simplify a graph."""

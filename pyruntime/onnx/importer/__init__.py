"""Conversion of a model file's records to a graph."""

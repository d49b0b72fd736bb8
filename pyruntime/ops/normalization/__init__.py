"""Normalizations and softmax."""

"""Passes over quantized graphs."""

"""Fourier transforms, windows and mel filter banks."""

"""Fourier transforms, window functions and mel filter banks."""

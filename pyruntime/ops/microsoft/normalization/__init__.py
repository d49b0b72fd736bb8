"""Normalizations and residual streams of com.microsoft."""

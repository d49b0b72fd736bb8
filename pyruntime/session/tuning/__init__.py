"""Measurements of devices and kernels."""

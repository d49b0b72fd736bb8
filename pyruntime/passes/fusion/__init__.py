"""Passes that fuse operators into fewer kernels."""

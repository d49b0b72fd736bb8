"""Operators of images: resizing, sampling, regions of interest."""

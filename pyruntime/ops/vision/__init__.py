"""Image operators: resizing, sampling, regions of interest."""

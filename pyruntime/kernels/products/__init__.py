"""Matrix product kernels, for floats, integers and packed weights."""

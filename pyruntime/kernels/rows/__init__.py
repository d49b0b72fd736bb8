"""Kernels that fold or normalize rows: reductions, softmax, norms, top k."""

"""Text generation operators of com.microsoft: beam search, greedy search, sampling."""

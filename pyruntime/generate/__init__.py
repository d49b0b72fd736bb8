"""Text generation with decoder models: sampling, decoding loops with caches, constraints, tokenizers."""

"""Text from decoder models: sampling, decoding loops with caches, constraints, tokenizers."""

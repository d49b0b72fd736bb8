"""Decoders of each precision whose greedy choices are all won clearly enough for another order of sums."""

from __future__ import annotations

__all__ = ["PROMPTS", "SEEDS", "TOKENS"]

PROMPTS, TOKENS = (1, 7, 128), 64

SEEDS = {
    ("llama", "int4"): 11,
    ("llama", "int4 float16"): 5,
    ("llama", "float32"): 4,
    ("llama", "float16"): 4,
    ("qwen2", "int4"): 10,
    ("qwen2", "int4 float16"): 7,
    ("qwen2", "float32"): 7,
    ("qwen2", "float16"): 7,
}
"""Shape and precision to the seed of the weights: of seeds 3 to 13 the one whose closest choice is won by most."""

"""Operators that make tensors out of sizes and attributes."""

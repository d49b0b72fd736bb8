"""Normalization operators, softmax and Hardmax."""

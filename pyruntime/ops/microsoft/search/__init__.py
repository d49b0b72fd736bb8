"""Operators of com.microsoft that generate text: beam search, greedy search, sampling."""

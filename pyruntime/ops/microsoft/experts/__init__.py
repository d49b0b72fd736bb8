"""Mixture-of-experts operators."""

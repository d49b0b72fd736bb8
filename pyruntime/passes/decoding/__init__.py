"""Passes for decoders: caches, packed projections, single-token products."""

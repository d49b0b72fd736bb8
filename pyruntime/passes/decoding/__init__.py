"""Passes for decoders: caches, packed projections, rows of one token."""

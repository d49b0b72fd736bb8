"""Passes for quantized graphs, packed weights and reduced precision."""
